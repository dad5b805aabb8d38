"""Join what the files gave: parents to children, reports to the agents they speak of.

Laws: (1) ids decide; order decides only between agents of one run that nothing else tells apart;
(2) an agent is told once, by its transcript if there is one; (3) no report is lost: what fits no
agent is kept with the one who was told it.
Not here: reading files (reading.py), judging whether a report was true (the judging half).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from jackline.autopsy.findings import Findings, Run
from jackline.autopsy.recount import SHOWN_TEXT
from jackline.autopsy.reports import Launch, Report
from jackline.autopsy.story import AgentStory, Ending, Role, Told
from jackline.failures import Kind, Observation, classify

_Key = tuple[str, str]
_ONE_MOMENT = timedelta(seconds=2)


@dataclass(slots=True)
class _Whole:
    """All findings, by the ids that join them."""

    stories: dict[_Key, AgentStory] = field(default_factory=dict)
    others: list[AgentStory] = field(default_factory=list)
    agent_of_call: dict[_Key, str] = field(default_factory=dict)
    caller_of: dict[_Key, str] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    run_of_task: dict[str, str] = field(default_factory=dict)


def bind(findings: Sequence[Findings]) -> list[AgentStory]:
    """All stories, each with its parent, its result and what was told about it."""
    whole = _Whole()
    for found in findings:
        for run in found.runs:
            _add_run(whole, run)
    for found in findings:
        for story in found.stories:
            _add_story(whole, story)
    _add_runs_without_transcripts(whole)
    for found in findings:
        _add_calls(whole, found)
    _set_parents(whole)
    _set_results(whole)
    _hand_out_reports(whole, [report for found in findings for report in found.reports])
    _hand_out_logs(whole)
    everyone = [*whole.stories.values(), *whole.others]
    for story in everyone:
        story.told.sort(key=lambda told: (told.at is None, told.at.timestamp() if told.at else 0))
    return everyone


def _add_story(whole: _Whole, story: AgentStory) -> None:
    key = (story.session_id, story.agent_id)
    known = whole.stories.get(key)
    if known is None:
        whole.stories[key] = story
    elif known.path == story.path:
        whole.others.append(story)
    else:
        whole.stories[key] = _merged(known, story)


def _merged(one: AgentStory, other: AgentStory) -> AgentStory:
    """The fuller of two tellings of one agent, with what only the other one knew."""
    fuller, thinner = (one, other) if one.turns >= other.turns else (other, one)
    fuller.told += thinner.told
    if all(sighting.fatal for sighting in fuller.sightings):
        fuller.sightings += [s for s in thinner.sightings if not s.fatal]
        fuller.sightings.sort(key=lambda s: (s.at is None, s.at.timestamp() if s.at else 0))
    if thinner.ending is Ending.FAILED and not any(s.fatal for s in fuller.sightings):
        fuller.sightings += [s for s in thinner.sightings if s.fatal]
        fuller.ending = Ending.FAILED
    return fuller


def _add_run(whole: _Whole, run: Run) -> None:
    known = whole.runs.setdefault(run.run_id, run)
    if known is not run:
        known.task_id = known.task_id or run.task_id
        known.journalled = known.journalled or run.journalled
        known.agents += [agent for agent in run.agents if agent not in set(known.agents)]
        known.results |= run.results
        known.labels |= run.labels
        known.logged += run.logged
        known.stories += run.stories
    if run.task_id is not None:
        whole.run_of_task[run.task_id] = run.run_id


def _add_runs_without_transcripts(whole: _Whole) -> None:
    known = {agent for _, agent in whole.stories}
    for run in whole.runs.values():
        for story in run.stories:
            if story.agent_id not in known:
                _add_story(whole, story)


def _add_calls(whole: _Whole, found: Findings) -> None:
    sessions = {story.agent_id: story.session_id for story in found.stories}
    for agent, call in found.started_by.items():
        session = sessions.get(agent)
        if session is not None:
            whole.agent_of_call[session, call] = agent
    for launch in found.launches:
        _add_launch(whole, launch)


def _add_launch(whole: _Whole, launch: Launch) -> None:
    key = (launch.session_id, launch.tool_use_id)
    whole.caller_of[key] = launch.teller_id
    if launch.agent_id is not None:
        whole.agent_of_call[key] = launch.agent_id
    if launch.task_id is not None and launch.run_id is not None:
        whole.run_of_task[launch.task_id] = launch.run_id


def _set_parents(whole: _Whole) -> None:
    for (session, call), agent in whole.agent_of_call.items():
        story = whole.stories.get((session, agent))
        caller = whole.caller_of.get((session, call))
        if story is not None and caller is not None and caller != agent:
            story.parent_id = caller
    for story in whole.stories.values():
        if story.role is not Role.MAIN and story.parent_id is None:
            story.parent_id = story.session_id


def _set_results(whole: _Whole) -> None:
    for run in whole.runs.values():
        for story in _of_run(whole, run):
            story.run_id = story.run_id or run.run_id
            story.role = Role.WORKFLOW
            story.label = run.labels.get(story.agent_id, story.label)
            kept = run.results.get(story.agent_id)
            if kept is not None:
                story.ending = Ending.FINISHED
            if run.journalled:
                story.result_at = kept


def _of_run(whole: _Whole, run: Run) -> list[AgentStory]:
    members = dict.fromkeys(run.agents)
    found = {s.agent_id: s for s in whole.stories.values() if s.agent_id in members}
    return [found[agent] for agent in members if agent in found]


def _hand_out_reports(whole: _Whole, reports: Iterable[Report]) -> None:
    about_runs: dict[str, list[Report]] = {}
    for report in reports:
        run_id = whole.run_of_task.get(report.task_id or "")
        if run_id is not None and run_id in whole.runs:
            about_runs.setdefault(run_id, []).append(report)
            continue
        story = _subject(whole, report)
        if story is not None:
            _tell(story, report.told)
    for run_id, told in about_runs.items():
        run = whole.runs[run_id]
        teller = whole.stories.get((told[0].session_id, told[0].teller_id))
        _hand_out_to_run(whole, run, [report.told for report in told], teller)
        run.logged.clear()


def _subject(whole: _Whole, report: Report) -> AgentStory | None:
    """The agent that a report speaks of; a task that is no run is the agent itself."""
    session = report.session_id
    by_call = whole.agent_of_call.get((session, report.tool_use_id or ""))
    for agent in (report.agent_id, report.task_id, by_call):
        story = whole.stories.get((session, agent)) if agent is not None else None
        if story is not None:
            return story
    return whole.stories.get((session, report.teller_id)) if report.told.is_error else None


def _hand_out_to_run(
    whole: _Whole, run: Run, tellings: Sequence[Told], teller: AgentStory | None
) -> None:
    """Give each failure of a run to the agent it names, the others to those without a result."""
    waiting = [s for s in _of_run(whole, run) if s.agent_id not in run.results]
    without_result = bool(waiting)
    unnamed: list[Told] = []
    for told in tellings:
        if not told.is_error:
            # The run was called a success although some of its agents gave nothing.
            if without_result and teller is not None:
                _tell(teller, told)
            continue
        named = [s for s in waiting if s.label and told.text.startswith(f"[{s.label}]")]
        if named:
            _tell(named[0], told)
            waiting.remove(named[0])
        else:
            unnamed.append(told)
    for told in unnamed:
        subject = waiting.pop(0) if waiting else teller
        if subject is not None:
            _tell(subject, told)


def _hand_out_logs(whole: _Whole) -> None:
    """Use a run's own log where nobody's transcript shows what was told of the run."""
    for run in whole.runs.values():
        stories = _of_run(whole, run)
        ended = [story.ended_at for story in stories if story.ended_at is not None]
        if not run.logged or not ended:
            continue
        at = max(ended)
        tellings = [
            Told(at, "workflow log", "failed", line, is_error=True)
            for line in run.logged
            if classify(Observation.of_text(line), now=at).kind is not Kind.NOT_A_FAILURE
        ]
        _hand_out_to_run(whole, run, tellings, None)


def _tell(story: AgentStory, told: Told) -> None:
    """Add a report, cut down to the lines that quote the agent's own failure, if any do."""
    quotes = [s.text for s in story.sightings if s.text]
    quoting = [line for line in told.text.splitlines() if any(q in line for q in quotes)]
    text = ("\n".join(quoting) or told.text)[:SHOWN_TEXT]
    if not any(_same_telling(told, text, known) for known in story.told):
        story.told.append(replace(told, text=text))


def _same_telling(told: Told, text: str, known: Told) -> bool:
    """Whether a transcript and a log tell of the same report."""
    if (told.teller, told.claim, text) != (known.teller, known.claim, known.text):
        return False
    return told.at is None or known.at is None or abs(told.at - known.at) < _ONE_MOMENT
