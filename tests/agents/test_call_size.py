"""What a call sends is counted before it is sent: roughly, and never too little for a bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jackline.agents.messages import MessagesRunner
from jackline.agents.messages.conversation import (
    AgentConversation,
    MessagesSettings,
)
from jackline.simulator.reply_script import Say
from jackline.testing.scripted_agents import ScriptedModel
from tests.agents.world import Counter, MemoryNotebook, OpenLeave, run, task


def test_each_call_says_what_it_will_send_before_it_asks() -> None:
    model = ScriptedModel.in_turn(Say("", (("add", {"a": 1, "b": 2}),)), Say("Done."))
    counted: list[int] = []
    bounds: list[int] = []

    async def count(_asked: int) -> None:
        call = leave.calls[-1]
        assert call is not None
        assert (call.model, call.max_tokens) == ("claude-opus-4-8", 32_000)
        counted.append(call.input_tokens())
        bounds.append(call.most_input())

    leave = OpenLeave(on_call=count)
    run(MessagesRunner(model).run(task(tools=[Counter()]), MemoryNotebook(), leave))
    answers = [request.answer for request in model.ledger if request.answer]
    assert len(answers) == len(counted) == 2
    for answer, rough, bound in zip(answers, counted, bounds, strict=True):
        sent = answer.usage.total - answer.usage.output_tokens
        assert sent / 2 < rough < 2 * sent
        assert sent <= bound
    assert answers[0].usage.total < counted[1], "the vendor's count, and what was said since"


@given(st.text(), st.text())
def test_the_upper_bound_is_at_least_a_token_for_each_byte(prompt: str, system: str) -> None:
    talk = AgentConversation()
    talk.add("prompt", {"text": prompt})
    asked = task(prompt=prompt, system=system)
    call = talk.next_call(talk.request_body(asked, MessagesSettings(), ()), 10)
    assert call.most_input() >= len((prompt + system).encode("utf-8", "surrogatepass"))


def test_a_picture_is_counted_at_its_most_and_not_by_its_bytes() -> None:
    talk = AgentConversation()
    source = {"type": "base64", "media_type": "image/png", "data": "A" * 1_000_000}
    talk.unanswered.append({"type": "image", "source": source})
    call = talk.next_call(talk.request_body(task(), MessagesSettings(), ()), 10)
    assert 4_784 < call.most_input() < 10_000


def test_after_a_shortening_the_vendors_count_is_no_bound_any_more() -> None:
    talk = AgentConversation()
    talk.add("prompt", {"text": "word " * 5_000})
    usage = [9_000, 5, 0, 0]
    said = [{"type": "text", "text": "Yes."}]
    talk.add("answer", {"content": said, "stop_reason": "end_turn", "usage": usage})
    assert talk.counted == 9_005
    talk.add("shortened", {"results_before": 1, "turns_before": 0, "context": 10})
    call = talk.next_call(talk.request_body(task(), MessagesSettings(), ()), 10)
    assert call.most_input() > 25_000
