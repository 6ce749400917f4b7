"""Messages as token ids, exactly: one model's chat template and call format.

What the policy sampled is never tokenized again. The ids that follow it are what the chat
template itself puts there: the template is rendered with and without the new message, the one
text must begin with the other, and the difference is tokenized. A template that rewrites
earlier turns (drops their reasoning, numbers them) cannot be continued so and is refused.

Text that looks like a control token inside a statement or a tool result is tokenized as plain
text: neither can end a turn or speak for somebody else.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

from tadpole.errors import ModelError
from tadpole.leaf import calls, reasoning
from tadpole.leaf.calls import CallFormat
from tadpole.leaf.profile import Profile
from tadpole.trace import Observation, ToolCall

if TYPE_CHECKING:  # an episode over a server needs no transformers
    from transformers import PreTrainedTokenizerBase

_MARK = "qzmarkqzq"  # stands for a text while the template is rendered
_REPLY = "<think>\nqzthoughtqz\n</think>\n\nqzreplyqz"
_CLOSING = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end|>", "<end_of_turn>")

Message = dict[str, Any]


class Dialogue:
    """The token-exact side of an episode; it holds no state, one serves many episodes."""

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        call_format: CallFormat,
        profile: Profile,
        template_options: Mapping[str, Any] | None = None,
    ):
        """``template_options`` go to the chat template, for example ``enable_thinking``.

        Raises ModelError where the template cannot be continued token by token.
        """
        self.tokenizer, self.call_format, self.profile = tokenizer, call_format, profile
        self._options = dict(template_options or {})
        try:
            source = tokenizer.get_chat_template()
        except ValueError:
            raise ModelError(
                "the model's tokenizer has no chat template; use an instruction-tuned model"
            ) from None
        self._takes_tools = bool(re.search(r"\btools\b", source))
        self._takes_results = bool(re.search(r"""['"]tool['"]""", source))
        self._check()

    @property
    def system(self) -> str:
        """The system message; where the template knows no tools, their schemas are in it."""
        if not self.profile.schemas or self._takes_tools:
            return self.profile.system
        example = ToolCall(name="NAME", arguments={"PARAMETER": "VALUE"})
        listed = "\n".join(json.dumps(schema["function"]) for schema in self.profile.schemas)
        shape = calls.render(example, self.call_format)
        return f"{self.profile.system}\n\nYour tools:\n{listed}\n\nCall them like this:\n{shape}"

    @cached_property
    def end_ids(self) -> frozenset[int]:
        """The tokens that end a turn, for whoever samples."""
        vocabulary = self.tokenizer.get_vocab()
        ids = {vocabulary[token] for token in _CLOSING if token in vocabulary}
        eos = self.tokenizer.eos_token_id
        return frozenset(ids | ({eos} if isinstance(eos, int) else set()) | {self.turn_end})

    @cached_property
    def turn_end(self) -> int:
        """The token with which the template itself closes a turn of the assistant."""
        ids = self._ids(self._render(self._replied(1)).rpartition("qzreplyqz")[2])
        known = {*self.tokenizer.all_special_ids, *self.tokenizer.added_tokens_decoder}
        if not ids or ids[0] not in known:
            raise ModelError("the chat template does not close the assistant's turn with a token")
        return ids[0]

    @cached_property
    def thinks(self) -> bool:
        """Whether the generation prompt already opens the reasoning."""
        prompt = self._render(self._opening(), generate=True).rpartition(_MARK)[2]
        return "<think>" in prompt and "</think>" not in prompt

    # --- the four steps of an episode ---------------------------------------------------------

    def start(self, statement: str) -> list[int]:
        """The prompt of an episode, up to and including the first generation prompt."""
        return self._encode(self._render(self._opening(), generate=True), [statement])

    def write(self, text: str) -> list[int]:
        """The ids of an assistant's turn that somebody else wrote, end of turn included."""
        return [*self._ids(text), self.turn_end]

    def read(self, ids: Sequence[int]) -> tuple[str, str, tuple[ToolCall, ...]]:
        """``(text, reasoning, calls)`` of a sampled turn; the end of turn is not in the text."""
        kept = list(ids)
        while kept and kept[-1] in self.end_ids:
            kept.pop()
        text = self.tokenizer.decode(
            kept, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        thought, rest = reasoning.split(str(text), opened=self.thinks)
        return str(text), thought, calls.parse(rest, self.call_format)

    def observe(
        self, observations: Sequence[Observation], last: int | None = None, then: str = ""
    ) -> list[int]:
        """The ids that follow the assistant's turn: its observations, and the next prompt.

        ``last`` is the turn's last sampled id. ``then`` is what the user says after the
        observations. Raises ModelError where ``last`` does not end a turn: a turn that was cut
        cannot be continued.
        """
        if last is not None and last not in self.end_ids:
            raise ModelError("the turn was cut before its end token: nothing can follow it")
        texts = [observation.text for observation in observations]
        if then:
            # A real question lets some templates drop earlier reasoning: only the end counts.
            new = self._results([_MARK] * len(texts), _MARK)
            whole = self._render([*self._replied(1), *new], generate=True)
            after = whole.rpartition("qzreplyqz")[2]
        else:
            new = self._results([_MARK] * len(texts))
            after = self._suffix(self._replied(1), new, generate=True)
        ids = self._encode(after, [*texts, then] if then else texts)
        # Another end token was sampled than the template's own: the turn is closed by both.
        return ids if last not in (None, self.turn_end) else ids[1:]

    # --- rendering ----------------------------------------------------------------------------

    def _opening(self) -> list[Message]:
        return [{"role": "system", "content": self.system}, _user(_MARK)]

    def _replied(self, turns: int) -> list[Message]:
        """A history of ``turns`` replies, each but the last with its observation."""
        messages = [*self._opening(), _assistant(_REPLY)]
        for _ in range(turns - 1):
            messages += [*self._results([_MARK]), _assistant(_REPLY)]
        return messages

    def _results(self, texts: Sequence[str], then: str = "") -> list[Message]:
        if self._takes_results:
            results = [{"role": "tool", "content": text} for text in texts]
            return [*results, _user(then)] if then else results
        wrapped = [f"<tool_response>\n{text}\n</tool_response>" for text in texts]
        return [_user("\n".join([*wrapped, then] if then else wrapped))]

    def _render(self, messages: list[Message], *, generate: bool = False) -> str:
        schemas: list[Any] = list(self.profile.schemas) if self._takes_tools else []
        try:
            return str(
                self.tokenizer.apply_chat_template(
                    messages,
                    tools=schemas or None,
                    add_generation_prompt=generate,
                    tokenize=False,
                    **self._options,
                )
            )
        except TemplateError as error:
            raise ModelError(
                f"the model's chat template refuses a tool dialogue: {error}"
            ) from None

    def _suffix(self, before: list[Message], new: list[Message], *, generate: bool = False) -> str:
        """What the template puts after the last reply of ``before`` once ``new`` follows."""
        head, whole = self._render(before), self._render([*before, *new], generate=generate)
        if not whole.startswith(head) or "qzthoughtqz" not in head:
            raise ModelError(
                "the model's chat template rewrites earlier turns, so the tokens that it sampled "
                "cannot be kept; give the model a template that only appends"
            )
        reply = head.rindex("qzreplyqz") + len("qzreplyqz")
        return whole[reply:]

    def _check(self) -> None:
        """Two turns must only append, the second what the first did, and show their results."""
        new = self._results([_MARK])
        suffixes = {self._suffix(self._replied(turns), new, generate=True) for turns in (1, 2)}
        grown = self._render(self._replied(2))
        plain = self._render([*self._replied(1), *new])
        if len(suffixes) != 1 or not grown.startswith(plain):
            raise ModelError(
                "the model's chat template treats earlier turns differently as the dialogue "
                "grows; give the model a template that only appends"
            )
        if self._render(self._opening(), generate=True).count(_MARK) != 1:
            raise ModelError("the model's chat template does not show the user's message once")
        # Each result exactly once: a template may name the tool role and yet leave results out.
        for count in (1, 2):
            after = self._suffix(self._replied(1), self._results([_MARK] * count), generate=True)
            shown = after.count(_MARK)
            if shown != count:
                raise ModelError(
                    f"the model's chat template shows {shown} of {count} tool results, "
                    "so the policy would not see what its calls gave back; give the model a "
                    "template that shows each result once"
                )
        _ = self.turn_end

    # --- tokenizing ---------------------------------------------------------------------------

    def _encode(self, rendered: str, texts: Sequence[str]) -> list[int]:
        """Tokenize ``rendered`` with ``texts`` in the places of their marks."""
        frame = rendered.split(_MARK)
        pieces = [piece for pair in zip(frame, [*texts, ""], strict=True) for piece in pair]
        if not any(self._control.search(text) for text in texts):
            return self._ids("".join(pieces))
        return [t for k, piece in enumerate(pieces) for t in self._ids(piece, plain=k % 2 == 1)]

    @cached_property
    def _control(self) -> re.Pattern[str]:
        tokens = [re.escape(token) for token in self.tokenizer.all_special_tokens]
        added = self.tokenizer.added_tokens_decoder.values()
        tokens += [re.escape(token.content) for token in added if token.special]
        return re.compile("|".join(tokens) or r"(?!)")

    def _ids(self, text: str, *, plain: bool = False) -> list[int]:
        if not text:
            return []
        encoded = self.tokenizer(text, add_special_tokens=False, split_special_tokens=plain)
        return [int(token) for token in encoded["input_ids"]]


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}
