"""What is said of a rank, or advised, as a value: a kind of clause and what stands in it.

Rooms that decide make clauses and no sentences. `verdict/words/clauses` has the sentence of each kind in the present
and in the past, so a new kind is a line here and a line there (a test holds both to each other).

Example: `clause(Says.NOT_ENTERED, op="all_reduce #7 on dp")` reads "it has not entered all_reduce #7 on dp".
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

Value = bool | int | float | str | tuple[int | str, ...]


class Witness(StrEnum):
    """Who says that a rank, and not its peers, did another thing than usual."""

    OWN_PAST = "own_past"
    SAME_ROLE = "same_role"
    MAJORITY = "majority"
    SAME_POSITION = "same_position"
    MEMBERS_AND_PAST = "members_and_past"
    MEMBERS = "members"
    EARLIER_OPERATIONS = "earlier_operations"
    ALL_OTHERS = "all_others"
    SIZES_BETWEEN_PEERS = "sizes_between_peers"


class Says(StrEnum):
    """The kinds of clauses."""

    # What a rank has to do with what others wait for
    NOT_ENTERED = "not_entered"
    NOT_ENQUEUED = "not_enqueued"
    REPORTED_ABSENT = "reported_absent"
    NO_ANSWER_TO_RAS = "no_answer_to_ras"
    DEVICE_REPORTS = "device_reports"
    NODE_REPORTS = "node_reports"
    STANDS_ELSEWHERE = "stands_elsewhere"
    REQUESTS_LATE = "requests_late"
    REQUESTS_SLOW = "requests_slow"
    MAY_BE_CONSEQUENCE = "may_be_consequence"
    ENTERED = "entered"
    NOT_ANSWERED = "not_answered"
    TAKEN_PART = "taken_part"
    IN_NO_OPERATION = "in_no_operation"
    AHEAD = "ahead"
    LEFT_ALONE = "left_alone"
    ENDED_AND_AWAITED = "ended_and_awaited"
    AWAITED_UNREAD = "awaited_unread"
    AWAITED_NO_RECORD = "awaited_no_record"
    AWAITED = "awaited"
    AWAITED_ENDED_RANKS = "awaited_ended_ranks"
    TIMED_OUT_WITHOUT_IT = "timed_out_without_it"
    NOT_COMPLETED = "not_completed"
    COMPLETED_BY_OTHERS = "completed_by_others"
    NOT_ANSWERED_CALL = "not_answered_call"
    NOT_ANSWERED_CALLS = "not_answered_calls"
    NOT_ANSWERED_MESSAGE = "not_answered_message"
    ONLY_STOPPED_ONE = "only_stopped_one"
    NOTHING_COMPLETES = "nothing_completes"
    AWAITS_UNKNOWN_RANK = "awaits_unknown_rank"
    NOT_REACHED = "not_reached"
    NOT_IN_RENDEZVOUS = "not_in_rendezvous"
    OTHERS_IN_RENDEZVOUS = "others_in_rendezvous"
    NEVER_SEEN = "never_seen"
    BLOCKED_NOWHERE = "blocked_nowhere"

    # What a rank issued that contradicts its peers
    ISSUED = "issued"
    ISSUED_UNLIKE = "issued_unlike"
    SIZES_DIFFER = "sizes_differ"
    SENT_UNEXPECTED = "sent_unexpected"
    EXPECTED_UNSENT = "expected_unsent"
    SKEWED = "skewed"
    WRONG_ORDER = "wrong_order"
    WRONG_ORDER_TO_PEERS = "wrong_order_to_peers"
    BLOCKED_ON = "blocked_on"

    # How a process or a node ended
    KILLED = "killed"
    RAISED = "raised"
    EXITED = "exited"
    ENDED_IN_ORDER = "ended_in_order"
    IS_ENDING = "is_ending"
    IS_GONE = "is_gone"
    OUT_OF_MEMORY = "out_of_memory"
    ABORTED_WITH_IT = "aborted_with_it"
    SIGNAL_OF_LAUNCHERS = "signal_of_launchers"
    NO_COMMUNICATOR_YET = "no_communicator_yet"
    GAVE_UP_CONNECTION = "gave_up_connection"
    ENDED_BEFORE_GIVING_UP = "ended_before_giving_up"
    NODE_SILENT = "node_silent"
    NO_ANSWER = "no_answer"
    OUT_OF_REACH = "out_of_reach"

    # Why a rank does not act
    SUSPENDED = "suspended"
    ASLEEP_WITH_GIL = "asleep_with_gil"
    HOLDS_GIL_IN = "holds_gil_in"
    WRITES = "writes"
    WAITS_FOR_DATA = "waits_for_data"
    BUSY = "busy"
    IN_PHASE = "in_phase"
    WAITS_FOR_CHILD = "waits_for_child"
    WAITS_FOR_ADDRESS = "waits_for_address"
    WAITS_FOR_RANK = "waits_for_rank"
    WAITS_FOR_JOB = "waits_for_job"
    WAITS_FOR_PROCESS = "waits_for_process"
    WAITS_FOR_SOMETHING = "waits_for_something"
    OWN_CODE = "own_code"
    OWN_CODE_IN = "own_code_in"
    IS_IN = "is_in"
    SERVES_IN = "serves_in"
    RUNS_IN = "runs_in"
    NOTHING_AFTER = "nothing_after"
    NOTHING_IN_FLIGHT = "nothing_in_flight"
    LAST_ISSUED_IN = "last_issued_in"

    # How slow a rank or a link is
    OWN_TIME = "own_time"
    OWN_TIME_OF_PEERS = "own_time_of_peers"
    OWN_TIME_OF_PAST = "own_time_of_past"
    OWN_TIME_OF_RING = "own_time_of_ring"
    COMES_AND_GOES = "comes_and_goes"
    COST = "cost"
    COST_TOGETHER = "cost_together"
    IS_ROOT = "is_root"
    SLOW_TOGETHER = "slow_together"
    SENDS_AT = "sends_at"
    RECEIVES_AT = "receives_at"
    SLOW_AT_REST = "slow_at_rest"

    # Why it is slow
    STOPPED_AGAIN_AND_AGAIN = "stopped_again_and_again"
    COLLECTS_GARBAGE = "collects_garbage"
    LIMITED_BY_GROUP = "limited_by_group"
    LIMITED_BY_AFFINITY = "limited_by_affinity"
    WITHOUT_CPU = "without_cpu"
    LIMIT_UNREADABLE = "limit_unreadable"
    TAKEN_BY_HYPERVISOR = "taken_by_hypervisor"
    SLOW_CLOCK = "slow_clock"
    MEMORY_READ_BACK = "memory_read_back"
    SLOW_STORAGE = "slow_storage"

    # What to do next
    STACKS_OF_SUSPECTS = "stacks_of_suspects"
    STACKS_OF_ALL = "stacks_of_all"
    STACKS_OF_RANK = "stacks_of_rank"
    STACKS_OF_BUSY_RANK = "stacks_of_busy_rank"
    COUNT_OPERATIONS = "count_operations"
    COMPARE_CODE = "compare_code"
    COMPARE_SPLITS = "compare_splits"
    SEE_EARLIER_LINES = "see_earlier_lines"
    NO_CHECKPOINT = "no_checkpoint"
    NO_CHECKPOINT_FROM = "no_checkpoint_from"
    SEE_BYTES = "see_bytes"
    SEE_LAUNCHER = "see_launcher"
    PING = "ping"
    RECORD_AGAIN = "record_again"
    MEASURE_AT_REST = "measure_at_rest"


class Clause(Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that is said of a rank, or advised."""

    says: Says
    values: dict[str, Value] = {}
    """What stands in it, by name: numbers in the unit that the name ends in, ranks, names of operations, places."""


def clause(says: Says, /, **values: Value) -> Clause:
    """A clause of this kind with these values; numbers of NumPy become Python's."""
    return Clause(says, {name: value.item() if hasattr(value, "item") else value for name, value in values.items()})
