"""How a search keeps to its budget: what is for searching, what for the trial, and what each block may have."""

from __future__ import annotations

from waxeq.events import Deadline, Events

KEPT = 0.4
"""Part of the budget that measuring kernels leaves for choosing among them and for timing whole plans."""
_GROWN = 0.5
"""Part of the time for a block in which its candidates are grown."""
_LEAST = 0.25
"""Seconds for a step of the search that a plan cannot be had without, where the budget is over."""
_TOGETHER = 1.0
"""Seconds that all blocks of a model have for such a step together, where they are many."""
_OVER = 2.0
"""Seconds after which only half as many are left for that."""
_MOMENT = 1e-3
"""Seconds that a search has which begins when the budget is spent."""
_COMPILED = 0.3
"""Seconds that the last compilation takes on a usual machine."""
_BELIEVED = 0.25
"""How many seconds of compiling a search must have seen to believe its own machine as much as a usual one."""
_AGAIN = 0.5
"""What choosing takes after calls were timed, of what it took before: most of what was fitted stays."""
_FAR = 3.0
"""How far ahead of the model as written what is predicted must be for its first run to leave no doubt."""
_FIRST = 2.0
"""What a plan's first run takes, when its memory is new and weights are packed, of what it takes later."""
CLOSING = 0.1
"""Seconds from the end of a trial until a user has the plan: the session is closed, and Python, which was kept from
looking for cycles among its objects, looks."""


class Pace:
    """Of a session. `deadline`: the budget; `begun`: seconds into it at which this search began; `until`: those at
    which the block that is searched has had its share of measuring, which is the `part` of what was left; `least_part`:
    its part of the time that all blocks have together once there is none; `kept`: the part of the budget that is not
    for measuring; `compiled_seconds`: of starts of a compiler so far, which would have been `usual_seconds` on a usual
    machine; `chose`: seconds that the last choice took; `contest`: seconds of a contest of whole plans; `sole`: whether
    the block that is searched is all of the model; `took`: what that takes as written, where it is on one thread and
    there is no time for a contest, 0 else; `enough`: seconds for what comes after searching, without runs of plan and
    model."""

    events: Events
    deadline: Deadline
    begun: float
    until: float
    part: float
    least_part: float
    kept: float
    compiled_seconds: float
    usual_seconds: float
    chose: float
    contest: float
    sole: bool
    took: float
    enough: float

    @property
    def slow(self) -> float:
        """How many times as long as on a usual machine compiling takes, as far as that was seen."""
        return (_BELIEVED + self.compiled_seconds) / (_BELIEVED + self.usual_seconds)

    @property
    def after(self) -> float:
        """Seconds of the budget that are for what comes after searching: more, where compiling takes long here."""
        kept = self.kept * (self.deadline.seconds or 0.0)
        return kept and kept + _COMPILED * max(0.0, self.slow - 1.0)

    @property
    def hurried(self) -> bool:
        """Whether what is left of the budget is for the trial, or the user wants to stop: no more is searched."""
        return self.events.stop_requested or self.deadline.left <= self.after

    @property
    def pressed(self) -> bool:
        """Whether what is left is for other blocks, or nothing is."""
        return self.hurried or self.deadline.elapsed > self.until

    def affords(self, seconds: float) -> bool:
        """Whether the block that is searched has so many seconds left for measuring: it is chosen anew after that."""
        return seconds < self.searching - _AGAIN * self.chose

    @property
    def given(self) -> float | None:
        """Seconds of the budget that this search may take: all of it, or what was left when it began, which is never
        the nothing that asks for no search at all; None without a budget."""
        whole = self.deadline.seconds
        return max(_MOMENT, whole - self.begun) if whole else whole

    def share(self, part: float, of_all: float | None = None) -> None:
        """From now on measure for this part of what is left for measuring at most. `of_all`: the part that the block
        that is searched has of all blocks, of which some were searched already."""
        self.least_part = part if of_all is None else of_all
        self.part = part
        self.until = self._end()

    def share_again(self) -> None:
        """The block that is searched has as large a part of what is left now, where that is more than is left of its
        share: growing its candidates may have left too little of a short one to time a single call."""
        self.until = max(self.until, self._end())

    def _end(self) -> float:
        """When the part of the block is over, of what is left now."""
        return self.deadline.elapsed + self.part * max(0.0, self.deadline.left - self.after)

    def leave(self, seconds: float) -> None:
        """So much of the budget is enough for timing whole plans, where that is less than is kept for it: the block
        that is searched has its part of the rest."""
        if self.deadline.seconds:
            less = max(0.0, self.kept - seconds / self.deadline.seconds)
            self.kept, self.until = self.kept - less, self.until + self.part * less * self.deadline.seconds

    def promised(self, seconds: float) -> None:
        """The block that is searched takes so long by what was measured: where that is far ahead of the model as
        written, one run of it will do, which is the first."""
        if self.sole and self.took > _FAR * seconds:
            self.leave(self.enough + _FIRST * seconds)

    def growing(self) -> Deadline:
        """The time for growing candidates of the block that is searched: half of its share of what is left for
        searching, and never nothing, for there must be a plan; over when the user wants to stop."""
        return self._unless_stopped(max(self.least, _GROWN * self.searching))

    def choosing(self) -> Deadline:
        """The time for one choice among the candidates of the block that is searched: what is left of its share, and
        never nothing; over when the user wants to stop."""
        return self._unless_stopped(max(self.least, self.searching))

    @property
    def least(self) -> float:
        """Seconds that a step has which there must be: the fewer, the more blocks there are (a model may have hundreds)
        and the longer the budget is over. Where nothing follows the block that is searched, it does not matter how long
        that is: saturation may have taken what a machine in use did not give it."""
        over = 0.0 if self.sole else max(0.0, -self.deadline.left)
        return min(_LEAST, self.least_part * _TOGETHER) / (1.0 + (over / _OVER) ** 2)

    def _unless_stopped(self, seconds: float) -> Deadline:
        return self.deadline.within(seconds).unless(lambda: self.events.stop_requested)

    @property
    def searching(self) -> float:
        """Seconds left for searching the block that is searched."""
        return min(self.until - self.deadline.elapsed, self.deadline.left - self.after)
