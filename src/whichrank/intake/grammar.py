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
    Entry("the watchdog has met an error", "torch", ("1.13", ""), f"{_PGNCCL}, Watchdog::run",
          "[PG ID {pg} PG GUID {pg}({desc}) Rank {place}] Process group watchdog thread terminated with exception: "
          "CUDA error: an illegal memory access was encountered", b"watchdog thread terminated with exception"),
    Entry("heartbeat of the watchdog, 2.2", "torch", ("2.2", "2.2"), f"{_PGNCCL}, heartbeatMonitor",
          "[PG {pg} Rank {place}] Heartbeat monitor timed out! Process will be terminated after dumping debug info.",
          b"Heartbeat monitor timed out"),
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
    Entry("slurmstepd: the job is queued again", "slurmstepd", ("", ""), "slurm: src/slurmd/slurmstepd/req.c",
          "slurmstepd: error: *** JOB {job} ON {host} CANCELLED AT 2026-06-01T03:00:00 DUE TO JOB REQUEUE ***",
          b"DUE TO JOB REQUEUE"),
    Entry("slurmstepd: the job is ended", "slurmstepd", ("", ""), "slurm: src/slurmd/slurmstepd/req.c",
          "slurmstepd: error: *** STEP {job}.0 ON {host} CANCELLED AT 2026-06-01T03:00:00 DUE TO TIME LIMIT ***",
          b"CANCELLED"),
    Entry("srun: a node has failed", "srun", ("", ""), "slurm: src/api/step_launch.c, node_fail_handler",
          "srun: error: Node failure on {host}", b"Node failure on "),
    Entry("torchrun: a process has ended", "torchrun", ("1.9", ""), "torch: distributed/elastic/multiprocessing/api.py",
          "E0601 03:00:00.1 4711 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: {code}) "
          "local_rank: {local} (pid: {pid}) of binary: /usr/bin/python", b"failed (exitcode: "),
    Entry("torch.multiprocessing: a process was killed", "torch", ("1.5", ""), "torch: multiprocessing/spawn.py, join",
          "torch.multiprocessing.spawn.ProcessExitedException: process {local} terminated with signal {signal_name}",
          b"terminated with signal"),
    Entry("torch.multiprocessing: a process has ended", "torch", ("1.5", ""), "torch: multiprocessing/spawn.py, join",
          "torch.multiprocessing.spawn.ProcessExitedException: process {local} terminated with exit code {code}",
          b"terminated with exit code"),
    Entry("torch.multiprocessing: a process raised", "torch", ("1.5", ""), "torch: multiprocessing/spawn.py, join",
          "-- Process {local} terminated with the following error:", b"terminated with the following error"),
    Entry("Lightning: how many ranks there are", "lightning", ("1.0", ""), "lightning: fabric/utilities/distributed.py",
          "Initializing distributed: GLOBAL_RANK: {rank}, MEMBER: 4/{world}", b"MEMBER: "),
    Entry("Lightning: a process has ended", "lightning", ("2.2", ""),
          "lightning: fabric/strategies/launchers/subprocess_script.py, _ChildProcessObserver",
          "[rank: {local}] Child process with PID {pid} terminated with code {code}. Forcefully terminating all other "
          "processes to avoid zombies", b"terminated with code"),
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
          "{host}:{pid}:{tid} [{local}] NCCL INFO NET/IB: WQE stall (no CQE): peer={peer} | local: qpn={qpn} "
          "dev=mlx5_0 port=1 lid=0 localGid={own_gid} | remote: qpn={peer_qpn} port=1 lid=0 remoteGid={gid} | "
          "stall_thr=1000000ns age={age_ns}ns inflight={in_flight}", b"NET/IB: WQE s"),
    Entry("NCCL: a request that was slow", "nccl", ("2.30", ""), "nccl: src/transport/net_ib/wqe_lat_mon.cc",
          "{host}:{pid}:{tid} [{local}] NCCL INFO NET/IB: WQE slow: peer={peer} | local: qpn={qpn} dev=mlx5_0 port=1 "
          "lid=0 localGid={own_gid} | remote: qpn={peer_qpn} port=1 lid=0 remoteGid={gid} | thr=1000000ns "
          "delta={age_ns}ns mean=9000ns stddev=700ns p50=8000ns p90=9000ns p99=11000ns p99.9=90000ns max={age_ns}ns "
          "count=4711 | t_post=1 t_poll=2", b"NET/IB: WQE s"),
    Entry("NCCL: an answer of RAS", "nccl", ("2.24", ""), "nccl: src/ras/client_support.cc", "Job summary\n===========",
          b"Job summary", 400),
    Entry("NVIDIA's driver: an error of a device", "kernel", ("", ""), "NVIDIA: XID Errors, GPU deployment guide",
          "[1843.308145] NVRM: Xid (PCI:{bus}): {xid}, pid={pid}, name=python3, {text}", b"NVRM: Xid"),
    Entry("NVIDIA's driver: an error of an NVSwitch", "kernel", ("", ""),
          "NVIDIA/open-gpu-kernel-modules: src/common/nvswitch/kernel/inc/error_nvswitch.h; Fabric Manager user guide",
          "Jun  1 {clock} {host} kernel: [1843.308145] nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): {sxid:05}, "
          "{severity}, {text}", b"SXid (PCI"),
    Entry("kernel: a machine check", "kernel", ("2.6", ""), "linux: arch/x86/kernel/cpu/mce/core.c, print_mce",
          "Jun  1 {clock} {host} kernel: [1843.308145] mce: [Hardware Error]: CPU {cpu}: Machine Check: 0 Bank 7: "
          "{status:x}", b"[Hardware Error]: CPU"),
    Entry("kernel: a panic by a machine check", "kernel", ("2.6", ""), "linux: arch/x86/kernel/cpu/mce/core.c",
          "Jun  1 {clock} {host} kernel: [1843.308145] Kernel panic - not syncing: Fatal machine check",
          b"Fatal machine check"),
    Entry("kernel: killed by damaged memory", "kernel", ("2.6", ""), "linux: arch/x86/mm/fault.c, do_sigbus",
          "[1843.308145] MCE: Killing python3:{pid} due to hardware memory corruption fault at 7f0000000000",
          b"due to hardware memory corruption"),
    Entry("kernel: a signal by damaged memory", "kernel", ("5.8", ""), "linux: mm/memory-failure.c, kill_proc",
          "[1843.308145] Memory failure: 0x1840200: Sending SIGBUS to python3:{pid} due to hardware memory corruption",
          b"due to hardware memory corruption"),
    Entry("Ray: where a rank is", "ray", ("2.0", ""), "ray: python/ray/train/_internal/backend_executor.py",
          "(TorchTrainer pid=45197, ip=10.76.0.71) - (node_id=4c934ab2f6, ip={address}, pid={pid}) world_rank={rank}, "
          "local_rank={local}, node_rank=0", b"world_rank="),
    Entry("Ray: a rank begins", "ray", ("1.10", ""), "ray: python/ray/train/torch/config.py",
          "(RayTrainWorker pid={pid}, ip={address}) Setting up process group for: env:// [rank={rank}, "
          "world_size={world}]", b"Setting up process group for"),
    Entry("Ray: a worker has ended", "ray", ("2.0", ""), "ray: python/ray/_private/worker.py; raylet",
          "(raylet) A worker died or was killed while executing a task by an unexpected system error. To troubleshoot "
          "the problem, check the logs for the dead worker. RayTask ID: ffff Worker ID: f8ab Node ID: 09d0 Worker IP "
          "address: {address} Worker port: {port} Worker PID: {pid} Worker exit type: SYSTEM_ERROR Worker exit detail: "
          "Worker unexpectedly exits with a connection error code 2. End of file.", b"Worker exit type: "),
    Entry("Ray: out of memory", "ray", ("2.2", ""), "ray: doc/source/ray-core/scheduling/ray-oom-prevention.rst",
          "Memory on the node (IP: {address}, ID: 09d0) where the task (actor ID: 5066, name=_RayTrainWorker__execute, "
          "pid={pid}, memory used=31.02GB) was running was 60.10GB / 62.00GB (0.969), which exceeds the memory usage "
          "threshold of 0.95.", b", memory used="),
    Entry("Ray: another attempt", "ray", ("2.43", ""), "ray: python/ray/train/v2/_internal/execution/controller/"
          "controller.py", "(TrainController pid=45197) Restarting training worker group after encountering failures "
          "on 1 worker(s):", b"Restarting training worker group"),
    Entry("Ray: another attempt, by its state", "ray", ("2.48", ""), "ray: pull request 53344; python/ray/train/v2/"
          "_internal/execution/controller/state.py", "(TrainController pid=45197) [State Transition] RUNNING -> "
          "RESTARTING.", b"[State Transition] RUNNING"),
    Entry("Ray: another size, by its state", "ray", ("2.48", ""), "ray: pull request 53344; python/ray/train/v2/"
          "_internal/execution/controller/state.py", "(TrainController pid=45197) [State Transition] RUNNING -> "
          "RESIZING.", b"[State Transition] RUNNING"),
    Entry("Ray: all workers have started", "ray", ("2.43", ""), "ray: pull request 52120; python/ray/train/v2/"
          "_internal/execution/worker_group/worker_group.py", "(TrainController pid=45197) Started training worker "
          "group of size {world}: ", b"Started training worker group of size"),
    Entry("Ray: all workers have started, before", "ray", ("2.0", ""), "ray: python/ray/train/_internal/"
          "backend_executor.py", "(TorchTrainer pid=45197, ip=10.76.0.71) Started distributed worker processes: ",
          b"Started distributed worker processes"),
    Entry("JobSet: another attempt", "jobset", ("0.6", ""), "kubernetes-sigs/jobset: pkg/constants/constants.go, "
          "pkg/controllers/failure_policy.go", "  Warning  RestartJobSetFailurePolicyAction  3m  jobset-controller  "
          "applying RestartJobSet failure policy action (first failed job: {host})", b"failure policy action"),
    Entry("Kubernetes: a container is started again", "kubernetes", ("1.26", ""), "kubernetes: pkg/kubelet/kuberuntime/"
          "kuberuntime_manager.go, doBackOff; pull request 113216", "  Warning  BackOff  1m (x5 over 3m)  kubelet  "
          "Back-off restarting failed container pytorch in pod {host}_default(eb3eca99-7dde-46e7-8ce0-5fc983d965ab)",
          b"restarting failed container"),
    Entry("Kubernetes: a container waits to be started again", "kubernetes", ("", ""), "kubernetes: pkg/kubelet/"
          "kuberuntime/kuberuntime_manager.go, doBackOff", "back-off 40s restarting failed container=pytorch "
          "pod={host}_default(eb3eca99-7dde-46e7-8ce0-5fc983d965ab)", b"restarting failed container"),
    Entry("Kubernetes: how often a container was started", "kubernetes", ("", ""), "kubernetes: kubectl/pkg/describe/"
          "describe.go, describeContainers", "    Restart Count:  {attempt}", b"Restart Count:"),
    Entry("Kubernetes: how often those of a listed pod were", "kubernetes", ("", ""), "kubernetes: pkg/printers/"
          "internalversion/printers.go, printPod", "{host}   0/1     CrashLoopBackOff   5 (2m ago)   20m",
          b"CrashLoopBackOff"),
    Entry("Kubernetes: name of a pod", "kubernetes", ("", ""), "kubernetes: kubectl/pkg/describe/describe.go",
          "Name:             {host}", b"Name:   "),
    Entry("Kubernetes: a container ran out of memory", "kubernetes", ("", ""),
          "kubernetes: kubectl/pkg/describe/describe.go, describeStatus; pkg/kubelet",
          "    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137", b"OOMKilled"),
    Entry("Kubernetes: a pod was evicted", "kubernetes", ("", ""), "kubernetes: pkg/kubelet/eviction/helpers.go",
          "  Warning  Evicted    3m    kubelet            The node was low on resource: memory. Container pytorch was "
          "using 61000Mi.", b"Evicted"),
    Entry("Kubernetes: pods in a list", "kubernetes", ("", ""), "kubernetes: pkg/printers/internalversion/printers.go",
          "{host}   0/1     {reason}   0          3h", b"OOMKilled"),
    Entry("DeepSpeed: ranks of hosts", "deepspeed", ("0.3", ""), "deepspeed: launcher/launch.py, main",
          "[2026-06-01 02:00:18,699] [INFO] [launch.py:179:main] global_rank_mapping=defaultdict(<class 'list'>, "
          "{{'{host}': [{ranks}]}})", b"[launch.py:"),
    Entry("DeepSpeed: a process begins", "deepspeed", ("0.14", ""), "deepspeed: launcher/launch.py, main",
          "[2026-06-01 02:00:18,700] [INFO] [launch.py:272:main] process {pid} spawned with command: "
          "['/usr/bin/python', '-u', 'train.py', '--local_rank={local}']", b"[launch.py:"),
    Entry("DeepSpeed: a process has ended", "deepspeed", ("0.3", ""), "deepspeed: launcher/launch.py, sigkill_handler",
          "[2026-06-01 03:00:18,700] [ERROR] [launch.py:325:sigkill_handler] ['/usr/bin/python', '-u', 'train.py', "
          "'--local_rank={local}'] exits with return code = {code}", b"[launch.py:"),
    Entry("accelerate: what it started has ended", "accelerate", ("0.20", ""), "accelerate: commands/launch.py",
          "subprocess.CalledProcessError: Command '['/usr/bin/python', 'train.py']' died with <Signals.{signal_name}: "
          "{signal}>.", b"CalledProcessError"),
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
    """The words of an entry with these fields; the kernel wrote it at `clock`, which is three o'clock if not given."""
    return entry_of(name).template.format(**{"clock": "03:00:00"} | fields)
