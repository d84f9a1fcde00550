"""What torch, NCCL, Gloo, launchers and the kernel write that says something of ranks: one table for all who read it.

Each entry says who writes it, in which versions, where that can be checked, and how it reads. `hint` is a word by which
its lines are found; `after` lines behind it belong to it. The patterns that take a line apart stand with the readers of
its writer (`watchdog`, `launchers`, `nccl_log`, ...), since one pattern reads the words of many versions. Generated
logs are made of the same entries, and a test reads each of them, so an entry that nobody reads cannot stay.

Versions are those in which the words were found; readers do not ask for a version and read what fits.
"""

from __future__ import annotations

from typing import Final, NamedTuple

_PGNCCL: Final = "torch: ProcessGroupNCCL.cpp"
_GLOO: Final = "torch: ProcessGroupGloo.cpp"


class Entry(NamedTuple):
    """One kind of line, or of several lines.

    Attributes:
        name: Of the entry.
        writer: Who writes it.
        versions: The first and the last known version with these words; "" open.
        source: Where they stand.
        template: The words, with fields in braces.
        hint: A part of them that is always there.
        after: Lines behind that belong to it.
    """

    name: str
    writer: str
    versions: tuple[str, str]
    source: str
    template: str
    hint: bytes
    after: int = 0


TABLE: Final = (
    Entry("timeout, without sizes", "torch", ("1.13", "2.0"), f"{_PGNCCL}, WorkNCCL::logFormat",
          "[Rank {place}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, "
          "Timeout(ms)={timeout_ms}) ran for {ran_ms} milliseconds before timing out.", b"Watchdog caught"),
    Entry("timeout", "torch", ("2.1", ""), f"{_PGNCCL}, WorkNCCL::logFormat",
          "[Rank {place}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, "
          "NumelIn={numel}, NumelOut={numel}, Timeout(ms)={timeout_ms}) ran for {ran_ms} milliseconds before timing "
          "out.", b"Watchdog caught"),
    Entry("end of the watchdog", "torch", ("1.13", "2.2"), f"{_PGNCCL}, ncclCommWatchdog",
          "[Rank {place}] NCCL watchdog thread terminated with exception: [Rank {place}] Watchdog caught collective "
          "operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={numel}, NumelOut={numel}, "
          "Timeout(ms)={timeout_ms}) ran for {ran_ms} milliseconds before timing out.", b"Watchdog caught"),
    Entry("status, by number of the group", "torch", ("2.3", "2.3"), f"{_PGNCCL}, watchdogHandler",
          "[PG {pg} Rank {place}] Timeout at NCCL work: {seq}, last enqueued NCCL work: {enqueued}, last completed "
          "NCCL "
          "work: {completed}.", b"last enqueued"),
    Entry("status, by number and description", "torch", ("2.4", "2.4"), f"{_PGNCCL}, watchdogHandler",
          "[PG {pg} ({desc}) Rank {place}] Exception (either an error or timeout) detected by watchdog at work: {seq}, "
          "last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}.", b"last enqueued"),
    Entry("status, by name", "torch", ("2.5", "2.6"), f"{_PGNCCL}, watchdogHandler",
          "[PG ID {pg} PG GUID {pg}({desc}) Rank {place}] Exception (either an error or timeout) detected by "
          "watchdog at "
          "work: {seq}, last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}.", b"last enqueued"),
    Entry("status", "torch", ("2.7", ""), f"{_PGNCCL}, Watchdog::runLoop",
          "[PG ID {pg} PG GUID {pg}({desc}) Rank {place}]  failure detected by watchdog at work sequence id: {seq} PG "
          "status: last enqueued work: {enqueued}, last completed work: {completed}", b"last enqueued"),
    Entry("asked for a dump by another rank", "torch", ("2.4", "2.4"), f"{_PGNCCL}, heartbeatMonitor",
          "[PG {pg} ({desc}) Rank {place}] Received a dump signal due to a collective timeout from  rank {asker} and "
          "we "
          "will try our best to dump the debug info. Last enqueued NCCL work: {enqueued}, last completed NCCL work: "
          "{completed}.This is most likely caused by incorrect usages of collectives", b"Last enqueued"),
    Entry("asked for a dump", "torch", ("2.5", ""), f"{_PGNCCL}, HeartbeatMonitor::runLoop",
          "[PG ID {pg} PG GUID {pg}({desc}) Rank {place}] Received a dump signal due to a collective timeout from  "
          "rank "
          "{asker} and we will try our best to dump the debug info. Last enqueued NCCL work: {enqueued}, last "
          "completed "
          "NCCL work: {completed}.This is most likely caused by incorrect usages of collectives, e.g., wrong sizes "
          "used "
          "across ranks, the order of collectives is not same for all ranks or the scheduled collective, for some "
          "reason, didn't run.", b"Last enqueued"),
    Entry("heartbeat of the watchdog", "torch", ("2.3", ""), f"{_PGNCCL}, HeartbeatMonitor::runLoop",
          "[PG ID {pg} PG GUID {pg}({desc}) Rank {place}] ProcessGroupNCCL's watchdog got stuck for 480 seconds "
          "without "
          "making progress in monitoring enqueued collectives.", b"watchdog got stuck"),
    Entry("desync: who is behind", "torch", ("1.13", ""), "torch: TraceUtils.h, analyzeLaggingRanks",
          "\t     [{ranks}] finished collective #{before}, but didn't join collective #{seq} (count from 1)",
          b"join collective #"),
    Entry("desync: number of a snapshot", "torch", ("1.13", ""), "torch: TraceUtils.h, dumpSnapshot",
          "\t   #{seq} {state} ranks:", b" ranks:", 1),
    Entry("desync: ranks of a snapshot", "torch", ("1.13", ""), "torch: TraceUtils.h, dumpSnapshot",
          "\t     [{ranks}] {state} {op}", b"] started "),
    Entry("desync: ranks of a snapshot, done", "torch", ("1.13", ""), "torch: TraceUtils.h, dumpSnapshot",
          "\t     [{ranks}] {state} {op}", b"] finished "),
    Entry("monitored barrier: who is absent", "torch", ("1.9", ""), f"{_GLOO}, monitoredBarrier",
          "[Rank 0]: Ranks {ranks} failed to pass monitoredBarrier in {timeout_ms} ms",
          b"failed to pass monitoredBarrier"),
    Entry("monitored barrier: the first that is absent", "torch", ("1.8", ""), f"{_GLOO}, monitoredBarrier",
          "[Rank 0]: Rank {rank} failed to pass monitoredBarrier in {timeout_ms} ms",
          b"failed to pass monitoredBarrier"),
    Entry("monitored barrier: who has come", "torch", ("1.9", ""), f"{_GLOO}, monitoredBarrier",
          "Rank {rank} successfully reached monitoredBarrier, but received errors while waiting for send/recv from "
          "rank "
          "0. Please check rank 0 logs for faulty rank.", b"reached monitoredBarrier"),
    Entry("DETAIL: what does not match", "torch", ("1.10", ""), "torch: ProcessGroupWrapper.cpp, verify",
          "Detected mismatch between collectives on ranks. Rank {rank} is running collective: CollectiveFingerPrint("
          "SequenceNumber={seq}, OpType={op}, TensorShape=[{numel}], TensorDtypes=Float, TensorDeviceTypes="
          "TensorOptions(dtype=float (default), device=cuda)), but Rank {other} is running collective: "
          "CollectiveFingerPrint(SequenceNumber={seq}, OpType={other_op}, TensorShape=[{numel}], TensorDtypes=Float, "
          "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda)).", b"Detected mismatch between"),
    Entry("Gloo: an operation has timed out", "gloo", ("", ""), "gloo: transport/tcp/unbound_buffer.cc",
          "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting "
          "{timeout_ms}ms for {op} operation to complete", b"Timed out waiting"),
    Entry("Gloo: a peer has closed", "gloo", ("", ""), "gloo: transport/tcp/pair.cc",
          "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer "
          "[{address}]:{port}", b"Connection closed by peer"),
    Entry("Gloo: a peer has reset", "gloo", ("", ""), "gloo: transport/tcp/pair.cc",
          "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Read error [{address}]:{port}: "
          "Connection "
          "reset by peer", b"Connection reset by peer"),
    Entry("torchrun: a failure", "torchrun", ("1.9", ""), "torch: distributed/elastic/multiprocessing/errors",
          "  time      : {stamp}\n  host      : {host}\n  rank      : {rank} (local_rank: {local})\n  exitcode  : "
          "{code} (pid: {pid})\n  error_file: <N/A>\n  traceback : Signal {signal} ({signal_name}) received by PID "
          "{pid}", b"exitcode  :"),
    Entry("torchrun: when", "torchrun", ("1.9", ""), "torch: distributed/elastic/multiprocessing/errors",
          "  time      : {stamp}", b"time      :"),
    Entry("torchrun: where", "torchrun", ("1.9", ""), "torch: distributed/elastic/multiprocessing/errors",
          "  host      : {host}", b"host      :"),
    Entry("torchrun: who", "torchrun", ("1.9", ""), "torch: distributed/elastic/multiprocessing/errors",
          "  rank      : {rank} (local_rank: {local})", b" (local_rank: "),
    Entry("torchrun: why", "torchrun", ("1.9", ""), "torch: distributed/elastic/multiprocessing/errors",
          "  traceback : Traceback (most recent call last):\n    File \"train.py\", line 88, in main\n  {exception}",
          b"traceback :", 60),
    Entry("torchrun: another attempt", "torchrun", ("1.9", ""), "torch: distributed/elastic/agent/server/api.py",
          "[default] Worker group FAILED. {left}/3 attempts left; will restart worker group",
          b"will restart worker group"),
    Entry("torchrun: number of the attempt", "torchrun", ("1.9", ""), "torch: distributed/elastic/agent/server/api.py",
          "  restart_count={attempt}", b"restart_count"),
    Entry("torchrun: environment", "torchrun", ("1.9", ""), "torch: distributed/elastic/agent/server/api.py",
          "TORCHELASTIC_RESTART_COUNT={attempt}", b"TORCHELASTIC_RESTART_COUNT"),
    Entry("srun: tasks that ended", "srun", ("", ""), "slurm: src/srun/libsrun/launch.c",
          "srun: error: {host}: task {rank}: {how}", b"srun: error:"),
    Entry("slurmstepd: out of memory", "slurmstepd", ("", ""), "slurm: src/slurmd/common/xcgroup, task/cgroup",
          "slurmstepd: error: Detected 1 oom_kill event in StepId={job}.0. Some of the step tasks have been OOM "
          "Killed.",
          b"oom_kill event"),
    Entry("mpirun: a rank that ended", "mpirun", ("", ""), "openmpi: orte/tools/orterun, prte",
          "mpirun noticed that process rank {rank} with PID {pid} on node {host} exited on signal {signal} "
          "({signal_name}).", b" noticed that process rank "),
    Entry("NCCL: who is where", "nccl", ("2.4", ""), "nccl: src/init.cc, ncclCommInitRank",
          "{host}:{pid}:{tid} [{local}] NCCL INFO ncclCommInitRank comm {comm} rank {rank} nranks {world} cudaDev "
          "{local} nvmlDev {local} busId {bus_id} commId {comm_id} - Init COMPLETE", b"nranks "),
    Entry("NCCL: a collective is enqueued", "nccl", ("2.4", ""), "nccl: src/enqueue.cc, ncclEnqueueCheck; RCCL alike",
          "{host}:{pid}:{tid} [{local}] NCCL INFO {function}: opCount {count:x} sendbuff 0x7f0000000000 recvbuff "
          "0x7f0000000000 count {numel} datatype 7 op 0 root 0 comm {comm} [nranks={world}] stream 0x5581a0",
          b": opCount "),
    Entry("NCCL: a warning", "nccl", ("2.4", ""), "nccl: src/debug.cc",
          "{host}:{pid}:{tid} [{local}] misc/socket.cc:57 NCCL WARN {text}", b"NCCL WARN"),
    Entry("NCCL: a request that is late", "nccl", ("2.30", ""), "nccl: src/transport/net_ib/wqe_lat_mon.cc; RCCL alike",
          "{host}:{pid}:{tid} [{local}] NCCL INFO NET/IB: WQE stall (no CQE): peer={peer} | local: qpn=1201 dev=mlx5_0 "
          "port=1 lid=0 localGid=fe80::1 | remote: qpn=1302 port=1 lid=0 remoteGid={gid} | stall_thr=1000000ns "
          "age={age_ns}ns inflight={in_flight}", b"WQE stall"),
    Entry("NVIDIA's driver: an error of a device", "kernel", ("", ""), "NVIDIA: XID Errors, GPU deployment guide",
          "[1843.308145] NVRM: Xid (PCI:{bus}): {xid}, pid={pid}, name=python3, {text}", b"NVRM: Xid"),
    Entry("kernel: killed for lack of memory", "kernel", ("3.0", ""), "linux: mm/oom_kill.c",
          "[1843.308145] Out of memory: Killed process {pid} (python3) total-vm:1234kB, anon-rss:1234kB",
          b"illed process "),
)  # fmt: skip
"""The table, by writer."""

HINTS: Final = {entry.hint: max(e.after for e in TABLE if e.hint == entry.hint) for entry in TABLE}
"""By word, how many lines behind one with it are read too."""


def entry_of(name: str) -> Entry:
    """The entry of this name.

    Raises:
        KeyError: There is none.
    """
    for entry in TABLE:
        if entry.name == name:
            return entry
    raise KeyError(name)


def worded(name: str, **fields: object) -> str:
    """The words of an entry with these fields."""
    return entry_of(name).template.format(**fields)
