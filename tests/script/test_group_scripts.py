"""Runs the text scripts in `group/`: how the members of a replicated group behave, one thing after the other.

A script is a list of steps: a command line, `----`, and what is then seen, up to an empty line. Lines that begin with `#` are comments.
With ORBITMQ_REWRITE=1 the scripts are rewritten with what is seen now; read the difference before committing it.

    group NAME... [memory=yes]       begins a group whose first member founds it; the others are learners
    lead | elapse MS                 until somebody serves | time passes, and what is under way arrives
    send NAME [count=N]              the leader NAME takes messages
    kill NAME | power NAME | start NAME | pause NAME | resume NAME
    cut NAME OTHER... | heal         NAME and the others do not hear each other | everybody does
    deaf NAME OTHER...               NAME does not hear the others, and they hear NAME
    engine away | engine back | engine restore | engine silent
                                     nobody reaches it | it is there | it is what it was at the last `engine backup` | it acts, and
                                     nobody hears
    engine backup
    switch NAME | accept-loss NAME | add NAME | remove NAME
    view | logs                      what the engine holds | who has how much, and what of it is confirmed

What is answered to senders, who leads, and who stops is shown when it happens. Disks and networks take a millisecond; a log is shown in
records.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.property.group_life import Life
from tests.property.group_machine import RECORD_BYTES, Machine
from tests.script.text_scripts import play

from orbitmq.replication import replica_steps as steps
from orbitmq.replication.replica_steps import KeptEpoch
from orbitmq.replication.view import View, first_view

SCRIPTS = sorted((Path(__file__).parent / "group").glob("*.txt"))
LEAD_MS = 20_000


class Steady(random.Random):
    """What takes time takes the shortest, nothing fails by chance."""

    def random(self) -> float:
        return 0.5

    def choice(self, given):  # type: ignore[no-untyped-def]
        return given[0]

    def randrange(self, *given: int) -> int:  # type: ignore[override]
        return 0

    def randint(self, a: int, b: int) -> int:
        return a


class Script(Life):
    """A group in a steady world."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.backup: tuple[View, int] | None = None

    def do_group(self, *names: str, memory: str = "") -> None:
        super().__init__(0)
        self.rng = self.network.rng = Steady()
        self._events.clear()
        self.sends = False
        self.machines = {name: Machine(name, names, self.rng, in_memory=bool(memory)) for name in names}
        self.machines[names[0]].kept = KeptEpoch(boot="")
        self.view, self.revision = first_view(names[0], names[1:]), 1
        for machine in self.machines.values():
            self.start(machine)

    def note(self, what: str) -> None:
        if not what.startswith("engine:"):
            self.shown.append(what)

    # --- what is seen -------------------------------------------------------------------------------------------------

    def _confirm_to(self, machine: Machine, effect: steps.ConfirmTo) -> None:
        before = len(machine.waiting)
        super()._confirm_to(machine, effect)
        if before > len(machine.waiting):
            self.note(f"{machine.name} answers {before - len(machine.waiting)} with success")

    def _step_down(self, machine: Machine, effect: steps.StepDown) -> None:
        self.note(
            f"{machine.name} leads no more" + (f", {len(machine.waiting)} are not known" if machine.waiting else "")
        )
        super()._step_down(machine, effect)

    def _answer_unknown(self, machine: Machine, effect: steps.AnswerUnknown) -> None:
        before = len(machine.waiting)
        super()._answer_unknown(machine, effect)
        if before > len(machine.waiting):
            self.note(f"{machine.name} answers {before - len(machine.waiting)} as not known")

    # --- commands -----------------------------------------------------------------------------------------------------

    def do_elapse(self, ms: str) -> None:
        self.run(int(ms))

    def do_lead(self) -> None:
        for _ in range(0, LEAD_MS, 10):
            self.run(10)
            if self.leader() is not None:
                return
        self.note("nobody serves")

    def do_send(self, name: str, count: str = "1") -> None:
        machine = self.machines[name]
        member = machine.member
        if member is None or member.replica.refusal:
            self.note(f"refused: {'it is down' if member is None else member.replica.refusal}")
            return
        for _ in range(int(count)):
            self.messages += 1
            machine.log.append_message(self.messages)
            machine.waiting.append(len(machine.log.data))
        self._log_changed(machine)

    def do_kill(self, name: str) -> None:
        self.machines[name].kill()

    def do_power(self, name: str) -> None:
        self.machines[name].power()

    def do_start(self, name: str) -> None:
        self.start(self.machines[name])

    def do_pause(self, name: str) -> None:
        self.machines[name].is_paused = True

    def do_resume(self, name: str) -> None:
        self.machines[name].is_paused = False

    def do_cut(self, name: str, *others: str) -> None:
        for other in others:
            self.network.cut |= {(name, other), (other, name)}

    def do_deaf(self, name: str, *others: str) -> None:
        self.network.cut |= {(other, name) for other in others}

    def do_heal(self) -> None:
        self.network.cut.clear()

    def do_engine(self, what: str) -> None:
        if what == "backup":
            self.backup = self.view, self.revision
        elif what == "restore":
            assert self.backup is not None
            self.view, self.revision = self.backup
        elif what == "silent":
            self.answers_lost = 1.0
        else:
            self.engine_cut, self.answers_lost = (set(self.machines) if what == "away" else set()), 0.0

    def do_switch(self, name: str) -> None:
        self.tell(self.machines[self.view.leader], steps.SwitchTo(name))

    def do_accept_loss(self, name: str) -> None:
        self.name_leader(name)

    def do_add(self, name: str) -> None:
        self._put(self.view.add_learner(name))

    def do_remove(self, name: str) -> None:
        try:
            self._put(self.view.remove(name))
        except ValueError as error:
            self.note(str(error))

    def do_view(self) -> None:
        view = self.view
        learners = f", learners {' '.join(view.learners)}" if view.learners else ""
        self.note(f"epoch {view.epoch}, {view.leader or 'nobody'} leads, in sync {' '.join(view.in_sync)}{learners}")

    def do_logs(self) -> None:
        for machine in self.machines.values():
            end, member = len(machine.log.data) // RECORD_BYTES, machine.member
            if member is None:
                self.note(f"{machine.name} {end} down")
            else:
                lost = ", may have lost some" if member.replica.has_lost_end else ""
                self.note(f"{machine.name} {end} confirmed {member.replica.confirmed // RECORD_BYTES}{lost}")

    def seen(self, line: str) -> list[str]:
        name, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        self.shown = []
        getattr(self, f"do_{name.replace('-', '_')}")(*[word for word in words if "=" not in word], **options)
        return self.shown


@pytest.mark.parametrize("path", SCRIPTS, ids=[path.stem for path in SCRIPTS])
def test_script(path: Path) -> None:
    play(path, Script().seen)


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 5
