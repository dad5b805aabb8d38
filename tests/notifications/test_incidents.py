"""One message per incident: the rules of the state machine, for any sequence of events."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jackline.notifications.incidents import CALM, MOST, WAIT, Condition, IncidentMessage, Incidents
from jackline.notifications.settings import IncidentKind


def parked(key: str = "a", text: str = "a is parked") -> Condition:
    return Condition(IncidentKind.PARKED, key, text)


def finished(key: str = "r") -> Condition:
    return Condition(IncidentKind.RUN_FINISHED, key, f"{key} finished", happened=True)


def shown(incidents: Incidents, at: float, *holding: Condition, quiet: bool = False) -> list[str]:
    return [message.text for message in incidents.look(at, holding, quiet=quiet)]


def test_a_trouble_is_reported_once_it_has_lasted_and_not_again_while_it_holds() -> None:
    incidents = Incidents()
    assert shown(incidents, 0, parked()) == []
    assert shown(incidents, WAIT, parked()) == ["a is parked"]
    for minute in range(1, 600):
        assert shown(incidents, minute * 60, parked()) == []


def test_a_trouble_that_is_over_at_once_is_not_reported() -> None:
    incidents = Incidents()
    shown(incidents, 0, parked())
    assert shown(incidents, WAIT / 2) == []
    assert shown(incidents, WAIT) == []
    assert len(incidents) == 0


def test_a_trouble_that_flaps_is_one_incident_and_one_that_comes_back_later_another() -> None:
    incidents = Incidents()
    shown(incidents, 0, parked())
    assert shown(incidents, WAIT, parked()) != []
    shown(incidents, 100)
    assert shown(incidents, 100 + CALM / 2, parked()) == []
    shown(incidents, 200 + CALM / 2)
    shown(incidents, 300 + 2 * CALM)
    again = 400 + 2 * CALM
    assert shown(incidents, again, parked()) == []
    assert shown(incidents, again + WAIT, parked()) == ["a is parked"]


def test_what_is_due_together_is_one_message_for_each_matter() -> None:
    incidents = Incidents()
    many = [parked(str(number), f"agent {number}") for number in range(100)]
    incidents.look(0, many, quiet=False)
    messages = incidents.look(WAIT, [*many, finished()], quiet=False)
    assert [message.about for message in messages] == [
        IncidentKind.PARKED,
        IncidentKind.RUN_FINISHED,
    ]
    assert messages[0].text.splitlines()[-1] == "and 92 more"


def test_what_happened_is_reported_at_once() -> None:
    assert shown(Incidents(), 0, finished()) == ["r finished"]


def test_quiet_hours_keep_what_happened_and_what_still_holds_until_they_end() -> None:
    incidents = Incidents()
    assert shown(incidents, 0, finished(), parked("a"), parked("b"), quiet=True) == []
    assert shown(incidents, 5000, parked("a"), quiet=True) == []
    morning = incidents.look(9000, [parked("a")], quiet=False)
    assert [message.text for message in morning] == ["r finished", "a is parked"]


def test_ever_new_incidents_do_not_grow_the_memory() -> None:
    incidents = Incidents()
    for number in range(3 * MOST):
        incidents.look(float(number) / 1000, [finished(str(number))], quiet=True)
    assert len(incidents) == MOST


STEP = st.tuples(
    st.floats(min_value=1, max_value=2 * CALM),
    st.frozensets(st.sampled_from("abc")),
    st.booleans(),
)


@given(st.lists(STEP, max_size=40))
def test_no_incident_is_reported_twice_unless_it_was_gone_and_none_is_reported_in_quiet_hours(
    steps: list[tuple[float, frozenset[str], bool]],
) -> None:
    incidents, now = Incidents(), 0.0
    told_at: dict[str, float] = {}
    last_seen: dict[str, float] = {}
    gone_for: dict[str, float] = {}
    held_since: dict[str, float] = {}
    for pause, holding, quiet in steps:
        now += pause
        for key in "abc":
            if key in holding:
                gone_for[key] = max(gone_for.get(key, 0.0), now - last_seen.get(key, now))
                last_seen[key] = now
                held_since.setdefault(key, now)
            else:
                gone_for[key] = max(gone_for.get(key, 0.0), now - last_seen.get(key, now))
                held_since.pop(key, None)
        messages = incidents.look(now, [parked(key, key) for key in holding], quiet=quiet)
        assert len(messages) <= 1
        received = {key for message in messages for key in message.text.splitlines()}
        assert not (quiet and received)
        for key in received:
            assert key in holding
            assert key not in told_at or gone_for[key] >= CALM
            told_at[key], gone_for[key] = now, 0.0
        for key, since in held_since.items():
            if not quiet and now - since >= WAIT:
                assert key in told_at, "a trouble that lasts is sent"


def test_a_message_shows_what_it_is_about_and_when() -> None:
    message = Incidents().look(7.0, [finished()], quiet=False)[0]
    assert message == IncidentMessage(
        IncidentKind.RUN_FINISHED, "Jackline: run finished", "r finished", 7.0
    )
