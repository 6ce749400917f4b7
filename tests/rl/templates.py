"""Chat templates that lay a dialogue out as known models' do, restated; and ones that must not be.

Only what a coding episode meets is here: one system turn, one statement, replies whose calls are
part of their text, and tool results.
"""

HEAD = "{{- '<|im_start|>' + message.role + '\\n' }}"
PROMPT = "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"

# SmolLM2: plain ChatML with a system turn of its own where none is given; knows no tools.
SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + "
    "'<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

_RESULTS = (
    "{%- elif message.role == 'tool' %}"
    "{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}"
    "{%- endif %}{{- '\\n<tool_response>\\n' }}{{- CONTENT }}{{- '\\n</tool_response>' }}"
    "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}"
    "{%- endif %}"
)
_HERMES = (
    "{%- if tools %}{{- '<|im_start|>system\\n' }}"
    "{%- if messages[0].role == 'system' %}{{- messages[0].content }}{%- else %}"
    "{{- 'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.' }}{%- endif %}"
    "{{- '\\n\\n# Tools\\n\\nSignatures within <tools></tools> XML tags:\\n<tools>' }}"
    "{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}"
    '{{- \'\\n</tools>\\n\\nReturn calls as <tool_call>\\n{"name": N, "arguments": {}}\\n'
    "</tool_call><|im_end|>\\n' }}"
    "{%- elif messages[0].role == 'system' %}"
    "{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}"
)
# Qwen2.5: schemas in the system turn, the results of one turn merged into one user turn.
QWEN25 = (
    _HERMES + "{%- else %}{{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. "
    "You are a helpful assistant.<|im_end|>\\n' }}{%- endif %}"
    "{%- for message in messages %}"
    "{%- if message.role == 'user' or (message.role == 'system' and not loop.first) "
    "or message.role == 'assistant' %}" + HEAD + "{{- message.content + '<|im_end|>\\n' }}"
    + _RESULTS.replace("CONTENT", "message.content")
    + "{%- endif %}{%- endfor %}" + PROMPT
)  # fmt: skip
# Where the last real question stands: tool results that came as user turns are none.
_LAST_QUERY = (
    "{%- set ns = namespace(searching=true, last_query_index=messages|length - 1) %}"
    "{%- for message in messages[::-1] %}{%- set index = (messages|length - 1) - loop.index0 %}"
    "{%- if ns.searching and message.role == 'user' and not ("
    "message.content.startswith('<tool_response>') and "
    "message.content.endswith('</tool_response>')) %}"
    "{%- set ns.searching = false %}{%- set ns.last_query_index = index %}{%- endif %}"
    "{%- endfor %}"
)
_THOUGHT = (
    "{%- set thought = '' %}{%- if '</think>' in content %}"
    "{%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1]"
    ".lstrip('\\n') %}"
    "{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{%- endif %}"
)
# Qwen3: reasoning is kept only after the last real question; the last reply always has a block.
QWEN3 = (
    _HERMES + "{%- endif %}" + _LAST_QUERY + "{%- for message in messages %}"
    "{%- set content = message.content %}"
    "{%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}" + HEAD
    + "{{- content + '<|im_end|>\\n' }}{%- elif message.role == 'assistant' %}" + _THOUGHT + HEAD
    + "{%- if loop.index0 > ns.last_query_index and (loop.last or thought) %}"
    "{{- '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}"
    "{%- else %}{{- content }}{%- endif %}{{- '<|im_end|>\\n' }}"
    + _RESULTS.replace("CONTENT", "content") + "{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}"
    "{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}"
)  # fmt: skip
# Qwen3.5: calls as XML, contents trimmed, and the prompt itself opens the reasoning.
QWEN35 = (
    "{%- if tools %}{{- '<|im_start|>system\\n# Tools\\n\\n<tools>' }}"
    "{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}"
    "{{- '\\n</tools>\\n\\nCall as:\\n<tool_call>\\n<function=name>\\n<parameter=key>\\nvalue\\n"
    "</parameter>\\n</function>\\n</tool_call>' }}"
    "{%- if messages[0].role == 'system' %}{{- '\\n\\n' + messages[0].content | trim }}"
    "{%- endif %}{{- '<|im_end|>\\n' }}"
    "{%- elif messages[0].role == 'system' %}"
    "{{- '<|im_start|>system\\n' + messages[0].content | trim + '<|im_end|>\\n' }}{%- endif %}"
    + _LAST_QUERY + "{%- for message in messages %}{%- set content = message.content | trim %}"
    "{%- if message.role == 'user' %}" + HEAD + "{{- content + '<|im_end|>\\n' }}"
    "{%- elif message.role == 'assistant' %}" + _THOUGHT + HEAD
    + "{%- if loop.index0 > ns.last_query_index %}"
    "{{- '<think>\\n' + thought | trim + '\\n</think>\\n\\n' + content }}"
    "{%- else %}{{- content }}{%- endif %}{{- '<|im_end|>\\n' }}"
    + _RESULTS.replace("CONTENT", "content") + "{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}"
    "{{- '<think>\\n\\n</think>\\n\\n' }}{%- else %}{{- '<think>\\n' }}{%- endif %}{%- endif %}"
)  # fmt: skip
OURS = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + "
    "'<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
APPENDING = {
    "ours": OURS,
    "smollm2": SMOLLM2,
    "qwen2.5": QWEN25,
    "qwen3": QWEN3,
    "qwen3.5": QWEN35,
}
# Each rewrites what was sampled, as variants of these templates in the wild do.
REWRITING = {
    # The reasoning of all but the last reply goes, whatever came in between.
    "forgets reasoning": QWEN3.replace("loop.index0 > ns.last_query_index and", "loop.last and"),
    # Every user turn counts as a question, tool results too: as on templates without tools.
    "results are questions": QWEN3.replace(
        "and not (message.content.startswith('<tool_response>') and "
        "message.content.endswith('</tool_response>'))",
        "",
    ).replace("'tool'", "'observation'"),
    "numbers its turns": OURS.replace("m['role'] +", "m['role'] + (messages|length|string) +"),
    "keeps the last four": OURS.replace("in messages %}", "in messages[-4:] %}"),
}
