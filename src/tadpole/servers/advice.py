"""What to change, by what is wrong and by the server that it is wrong with: one table.

Flags and variables are those of the servers' own documentation.
"""

from collections.abc import Mapping
from enum import Enum, auto

from tadpole.servers.kind import ServerKind

_LLAMA, _PYTHON, _OLLAMA = ServerKind.LLAMA_CPP, ServerKind.LLAMA_CPP_PYTHON, ServerKind.OLLAMA
_VLLM, _SGLANG, _STUDIO = ServerKind.VLLM, ServerKind.SGLANG, ServerKind.LM_STUDIO
_ANY = ServerKind.OTHER


class Fault(Enum):
    """What can be wrong with a server, a template or a model."""

    UNREACHABLE = auto()
    KEY = auto()
    ADDRESS = auto()
    PROXY = auto()
    NO_MODEL = auto()
    OTHER_MODEL = auto()
    SILENT = auto()
    REASONING = auto()
    ENDLESS = auto()
    TOOLS_REFUSED = auto()
    TOOLS_LOST = auto()
    NO_CALL = auto()
    CALL_IN_TEXT = auto()
    BROKEN_CALL = auto()
    ONE_CALL = auto()
    RESULT = auto()
    NO_USAGE = auto()
    WINDOW = auto()
    TRUNCATES = auto()
    SLOW = auto()
    MEMORY = auto()


_TEMPLATE = {
    _LLAMA: "restart llama-server with --jinja --chat-template-file FILE.jinja (a template of the "
    "model's makers that knows tools and the role tool)",
    _PYTHON: "restart with --chat_format chatml-function-calling",
    _OLLAMA: "take a model that lists the capability tools in ollama show {model}, or give it in a "
    "Modelfile a TEMPLATE that uses {{{{ .Tools }}}} and the role tool",
    _VLLM: "restart vllm serve with --chat-template FILE.jinja (one that knows tools and the role "
    "tool)",
    _SGLANG: "restart sglang.launch_server with --chat-template FILE.jinja (one that knows tools "
    "and the role tool)",
    _STUDIO: "My Models > {model} > Prompt Template: put in the template of the model's makers",
    _ANY: "give the server a chat template that knows tools and the role tool",
}
_PARSER = {
    _LLAMA: "restart llama-server with --jinja",
    _PYTHON: "restart with --chat_format chatml-function-calling",
    _OLLAMA: "ollama pull {model} again (its TEMPLATE decides how calls are read), or take a model "
    "with the capability tools",
    _VLLM: "restart vllm serve with --enable-auto-tool-choice --tool-call-parser {vllm_parser}",
    _SGLANG: "restart sglang.launch_server with --tool-call-parser {sglang_parser}",
    _STUDIO: "take a model with the tool badge: LM Studio reads the calls of those",
    _ANY: "switch on tool calling in the server",
}
_WINDOW = {
    _LLAMA: "restart llama-server with -c {context} -np 1 (slots share -c)",
    _PYTHON: "restart with --n_ctx {context}",
    _OLLAMA: "OLLAMA_CONTEXT_LENGTH={context} ollama serve",
    _VLLM: "restart vllm serve with --max-model-len {context}",
    _SGLANG: "restart sglang.launch_server with --context-length {context}",
    _STUDIO: "lms load {model} --context-length {context}",
    _ANY: "give the server a context of {context} tokens",
}
_ADVICE: Mapping[Fault, Mapping[ServerKind, str]] = {
    Fault.UNREACHABLE: {
        _ANY: "start the server, or set OPENAI_BASE_URL to where it is: llama-server "
        "http://127.0.0.1:8080/v1, Ollama :11434/v1, LM Studio :1234/v1, vLLM :8000/v1, SGLang "
        ":30000/v1"
    },
    Fault.KEY: {_ANY: "export OPENAI_API_KEY=KEY, the one that the server was started with"},
    Fault.ADDRESS: {_ANY: "export OPENAI_BASE_URL={root}/v1"},
    Fault.PROXY: {_ANY: "export NO_PROXY={host} no_proxy={host}"},
    Fault.NO_MODEL: {
        _OLLAMA: "ollama pull {model}",
        _STUDIO: "lms load {model}",
        _ANY: "load a model in the server",
    },
    Fault.OTHER_MODEL: {
        _OLLAMA: "ollama pull {model}, or --model openai:{nearest}",
        _STUDIO: "lms load {model}, or --model openai:{nearest}",
        _VLLM: "--model openai:{nearest}, or vllm serve --served-model-name {model}",
        _SGLANG: "--model openai:{nearest}, or sglang.launch_server --served-model-name {model}",
        _ANY: "--model openai:{nearest}",
    },
    Fault.SILENT: _TEMPLATE,
    Fault.REASONING: {
        _LLAMA: "restart llama-server with --jinja --reasoning-format deepseek",
        _OLLAMA: "update Ollama to 0.9 or newer: it separates reasoning itself",
        _VLLM: "restart vllm serve with --reasoning-parser {reasoning_parser}",
        _SGLANG: "restart sglang.launch_server with --reasoning-parser {reasoning_parser}",
        _STUDIO: "Developer > Settings: switch on the separate field reasoning_content",
        _ANY: "switch on the separation of reasoning in the server (reasoning_content)",
    },
    Fault.ENDLESS: {
        _LLAMA: "restart llama-server with --reasoning off (older ones: --reasoning-budget 0), or "
        "take the model's Instruct variant",
        _ANY: "switch thinking off in the chat template, or take the model's Instruct variant",
    },
    Fault.TOOLS_REFUSED: _PARSER,
    Fault.TOOLS_LOST: _TEMPLATE,
    Fault.NO_CALL: {
        _ANY: "take a model that was trained to call tools (a Qwen3 or Qwen3-Coder of 4B or more)"
    },
    Fault.CALL_IN_TEXT: _PARSER,
    Fault.BROKEN_CALL: _PARSER,
    Fault.ONE_CALL: {_ANY: "nothing to set: it takes more turns (--leaf.max_turns) for the same"},
    Fault.RESULT: _TEMPLATE,
    Fault.NO_USAGE: {_ANY: "update the server: it gives no usage.prompt_tokens"},
    Fault.WINDOW: {
        kind: f"{text}; or tadpole solve --leaf.max_context {{holds}}"
        for kind, text in _WINDOW.items()
    },
    Fault.TRUNCATES: {
        kind: f"{text}; or tadpole solve --leaf.max_context {{holds}}"
        for kind, text in {
            **_WINDOW,
            _STUDIO: f"{_WINDOW[_STUDIO]}, and Context Overflow: Stop at Limit",
            _LLAMA: f"{_WINDOW[_LLAMA]} --no-context-shift",
        }.items()
    },
    Fault.SLOW: {
        _LLAMA: "restart llama-server with -ngl 99 where there is a GPU, or take a smaller model",
        _OLLAMA: "ollama ps shows what runs on the CPU: take a model that fits the GPU",
        _STUDIO: "lms load {model} --gpu max, or take a smaller model",
        _ANY: "take a smaller model or a faster machine",
    },
    Fault.MEMORY: {
        _LLAMA: "llama-server with --cache-type-k q8_0 --cache-type-v q8_0, a smaller -c, or a "
        "model with fewer bits",
        _OLLAMA: "OLLAMA_FLASH_ATTENTION=1 OLLAMA_KV_CACHE_TYPE=q8_0 ollama serve, or a smaller "
        "OLLAMA_CONTEXT_LENGTH",
        _VLLM: "vllm serve with --kv-cache-dtype fp8, or a smaller --max-model-len",
        _SGLANG: "sglang.launch_server with --kv-cache-dtype fp8_e5m2, or a smaller "
        "--context-length",
        _ANY: "a smaller context, or a model with fewer bits",
    },
}
# Part of a model's name -> parsers of vLLM and SGLang; the first that fits.
_PARSERS = (
    ("qwen3-coder", "qwen3_coder", "qwen3_coder"),
    ("qwen3.5", "qwen3_coder", "qwen3_coder"),
    ("qwen", "hermes", "qwen25"),
    ("llama", "llama3_json", "llama3"),
    ("mistral", "mistral", "mistral"),
    ("deepseek", "deepseek_v3", "deepseekv3"),
    ("", "hermes", "qwen25"),
)


def advice(fault: Fault, kind: ServerKind, model: str, **more: object) -> str:
    """The exact thing to type or change. ``more``: context, holds, nearest, host, root."""
    lowered = model.lower().replace("_", "-")
    _, vllm, sglang = next(row for row in _PARSERS if row[0] in lowered)
    reasoning = "deepseek_r1" if "deepseek" in lowered else "qwen3"
    if kind is ServerKind.SGLANG:
        reasoning = reasoning.replace("_", "-")
    table = _ADVICE[fault]
    return table.get(kind, table[ServerKind.OTHER]).format(
        model=model,
        vllm_parser=vllm,
        sglang_parser=sglang,
        reasoning_parser=reasoning,
        **{"context": "N", "holds": "N", "nearest": "NAME", "host": "", "root": "", **more},
    )
