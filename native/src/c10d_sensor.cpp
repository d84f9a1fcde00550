// The c10d sensor: sees every collective and send/recv that goes through torch.distributed, from Python or C++.
//
// Why BackendSelect: c10d's methods dispatch through the c10d::* operators. This key sits above all backend keys, is in
// the always-included set (so inference_mode does not skip it), and has no kernel of its own for c10d, so nothing is
// overridden. One registration serves every device, backend and group; DDP's reducer, FSDP2, functional collectives and
// compiled graphs come the same way. A boxed kernel looks at the arguments where they lie and passes them on untouched.
//
// Why the work object is wrapped (Gloo only): "in flight" does not mean "blocked". Only `Work::wait` tells on which
// operation a thread stands, and send/recv of Gloo have no completion but that. The wrapper forwards every virtual
// method; the class is not registered with Python, which sees `Work` as before. Other backends (NCCL) do not block the
// host in wait(), so their work objects are left alone: only the issue is recorded, and the record says so.
//
// What an operation costs: between the hot marks nothing locks, calls the kernel or allocates, with three exceptions that
// `tests/unit/test_native_lint.py` counts. An operation of Gloo needs a wrapped work object (one allocation), what both
// it and the completion callback know (one, since either may outlive the other), and the callback itself (torch's own
// list and function object). No pool takes their place: they die on threads of Gloo, so it would need a lock.
//
// Built on the user's machine against the installed torch; a header that changed fails the build, not the job.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/library.h>

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "whichrank/c10d_arguments.h"
#include "whichrank/ring.h"

namespace {

using c10::intrusive_ptr;
using c10d::ProcessGroup;
using c10d::Work;
using namespace whichrank;

// ---- process groups: pointer -> slot, without a lock on the way ------------------------------------------------------

struct Group {
  std::atomic<const ProcessGroup*> key{nullptr};
  int slot = -1;
  uint64_t gloo_devices = 0; // bit per device type that Gloo serves
  std::atomic<uint32_t> timeout_ms{0}; // the one that holds now; see retime_groups
  uint32_t first_timeout_ms = 0;       // the one that it was made with: Gloo's send and receive keep it
  c10::weak_intrusive_ptr<ProcessGroup>* alive = nullptr; // keeps the address from being reused
};

constexpr size_t kGroups = 1024;
const auto* const kRemoved = reinterpret_cast<const ProcessGroup*>(1);
// Leaked on purpose: operations may still end while static objects are being destroyed.
Group* const groups = new Group[kGroups];
std::mutex& groups_mutex = *new std::mutex;
std::atomic<bool> enabled{false};
std::string& ring_dir = *new std::string;
std::string& job_name = *new std::string;
std::string& host_name = *new std::string;
wr_identity environment_identity{-1, -1, -1, -1, 0, nullptr, nullptr};

/* hot */

size_t home_of(const ProcessGroup* pg) {
  return (reinterpret_cast<uintptr_t>(pg) >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 54;
}

Group* find_group(const ProcessGroup* pg) {
  for (size_t probe = 0, at = home_of(pg); probe < kGroups; ++probe, at = (at + 1) % kGroups) {
    const ProcessGroup* key = groups[at].key.load(std::memory_order_acquire);
    if (key == pg) return &groups[at];
    if (!key) return nullptr;
  }
  return nullptr;
}

/* end hot */

void forget_group(wr_ring* ring, Group& g) { // under the mutex
  g.key.store(kRemoved, std::memory_order_release);
  if (g.slot >= 0) wr_comm_close(ring, g.slot);
  delete g.alive;
  g.alive = nullptr;
}

void forget_dead_groups(wr_ring* ring) { // under the mutex
  for (size_t at = 0; at < kGroups; ++at)
    if (groups[at].alive && groups[at].alive->expired()) forget_group(ring, groups[at]);
}

// Slots of destroyed groups are given back. Runs on the heartbeat thread.
void release_dead_groups() {
  std::unique_lock<std::mutex> lock(groups_mutex, std::try_to_lock);
  wr_ring* ring = wr_process_ring();
  if (lock && ring) forget_dead_groups(ring);
}

// A forked child is not the rank that its environment names. Weak pointers are left behind: the groups are the parent's.
void forget_all_in_child() {
  for (size_t at = 0; at < kGroups; ++at) {
    groups[at].key.store(nullptr, std::memory_order_relaxed);
    groups[at].alive = nullptr;
  }
  environment_identity.rank = environment_identity.local_rank = -1;
  new (&groups_mutex) std::mutex;
}

struct BackendFacts {
  std::string name;
  std::vector<int32_t> members;
  uint64_t gloo_devices = 0;
  uint32_t timeout_ms = 0;
};

void ask_backend(c10d::Backend& backend, c10::DeviceType device, BackendFacts& facts) {
  const std::string name = backend.getBackendName();
  if (name == "gloo") facts.gloo_devices |= UINT64_C(1) << static_cast<int>(device);
  if (facts.name.find(name) == std::string::npos) facts.name += (facts.name.empty() ? "" : "/") + name;
  if (facts.timeout_ms) return;
  auto options = backend.getBackendOptions();
  if (!options) return; // the fake backend
  facts.timeout_ms = as_ms(options->timeout.count());
  for (uint64_t rank : options->global_ranks_in_group) facts.members.push_back(static_cast<int32_t>(rank));
}

BackendFacts ask_backends(ProcessGroup& pg) {
  BackendFacts facts;
  for (const c10::Device& device : pg.getDeviceTypes()) {
    try {
      ask_backend(*pg.getBackend(device.type()), device.type(), facts);
    } catch (const std::exception&) {
      // A backend without these: the members are joined by group rank in the analyzer.
    }
  }
  return facts;
}

// The ring exists already when the launcher told us our rank; else (mp.spawn, a hand-made launcher) the first group
// that we meet tells it.
wr_ring* ring_for(const ProcessGroup& pg, const BackendFacts& facts) {
  if (wr_ring* ring = wr_process_ring()) {
    if (ring->header.rank < 0 && facts.members.empty()) wr_ring_set_rank(ring, pg.getRank(), pg.getSize());
    return ring;
  }
  wr_identity identity = environment_identity;
  const auto place = static_cast<size_t>(pg.getRank());
  if (identity.rank < 0) identity.rank = place < facts.members.size() ? facts.members[place] : pg.getRank();
  if (identity.world_size < 0 && facts.members.empty()) identity.world_size = pg.getSize();
  identity.host = host_name.c_str();
  identity.job = job_name.c_str();
  wr_ring* ring = wr_open_process_ring(ring_dir.c_str(), &identity, release_dead_groups);
  if (ring) wr_sensor_set(ring, WR_SENSOR_C10D, WR_SENSOR_ON, "");
  return ring;
}

Group* add_group(const intrusive_ptr<ProcessGroup>& pg) { // under the mutex
  BackendFacts facts = ask_backends(*pg);
  wr_ring* ring = ring_for(*pg, facts);
  if (!ring) {
    enabled.store(false, std::memory_order_relaxed); // no ring to be had: pass everything through from now on
    return nullptr;
  }
  forget_dead_groups(ring); // their slots may be needed sooner than the heartbeat comes
  const auto size = static_cast<uint32_t>(pg->getSize());
  if (facts.members.empty()) { // c10d leaves the list empty for the default group
    for (uint32_t i = 0; i < size; ++i) facts.members.push_back(static_cast<int32_t>(i));
  }
  std::string name, desc;
  try {
    name = pg->getGroupName();
    desc = pg->getGroupDesc();
  } catch (const std::exception&) {
    // A group that was never named: the slot keeps an empty name.
  }
  for (size_t probe = 0, at = home_of(pg.get()); probe < kGroups; ++probe, at = (at + 1) % kGroups) {
    const ProcessGroup* key = groups[at].key.load(std::memory_order_relaxed);
    if (key && key != kRemoved) continue;
    Group& g = groups[at];
    const bool listed = facts.members.size() == size;
    g.slot = wr_comm_open(ring, name.c_str(), desc.c_str(), facts.name.empty() ? "unknown" : facts.name.c_str(), size,
                          static_cast<uint32_t>(pg->getRank()), listed ? facts.members.data() : nullptr,
                          facts.timeout_ms);
    g.gloo_devices = facts.gloo_devices;
    g.timeout_ms.store(facts.timeout_ms, std::memory_order_relaxed);
    g.first_timeout_ms = facts.timeout_ms;
    g.alive = new c10::weak_intrusive_ptr<ProcessGroup>(pg);
    g.key.store(pg.get(), std::memory_order_release);
    return &g;
  }
  return nullptr;
}

// At the first operation of a group that Python did not tell of.
Group* meet_group(const intrusive_ptr<ProcessGroup>& pg) {
  std::lock_guard<std::mutex> lock(groups_mutex);
  Group* known = find_group(pg.get());
  return known ? known : add_group(pg);
}

// Told by Python when a group is made or shut down (see sensors/groups.py). Opening a group here and not at its first
// operation gives it the same generation on all members, also on one that never uses it.
void open_group(const intrusive_ptr<ProcessGroup>& pg) {
  if (!enabled.load(std::memory_order_relaxed)) return;
  std::lock_guard<std::mutex> lock(groups_mutex);
  if (!find_group(pg.get())) add_group(pg);
}

void close_group(const intrusive_ptr<ProcessGroup>& pg) {
  std::lock_guard<std::mutex> lock(groups_mutex);
  wr_ring* ring = wr_process_ring();
  Group* known = find_group(pg.get());
  if (ring && known) forget_group(ring, *known);
}

// Told by Python when some group was given another timeout. Which one it was is not told, since a timeout can be set on
// the group or on one of its backends: all are asked, which is cold. Operations in flight keep the timeout that they were
// issued with, as they do in torch.
void retime_groups() {
  std::vector<intrusive_ptr<ProcessGroup>> asked; // let go after the mutex: the last reference may end a group
  std::lock_guard<std::mutex> lock(groups_mutex);
  wr_ring* ring = wr_process_ring();
  if (!ring) return;
  for (size_t at = 0; at < kGroups; ++at) {
    Group& g = groups[at];
    if (!g.alive) continue;
    asked.push_back(g.alive->lock());
    if (!asked.back()) continue;
    const uint32_t now_ms = ask_backends(*asked.back()).timeout_ms;
    if (!now_ms || now_ms == g.timeout_ms.load(std::memory_order_relaxed)) continue;
    g.timeout_ms.store(now_ms, std::memory_order_relaxed);
    wr_comm_set_timeout(ring, g.slot, now_ms);
  }
}

// ---- the work object -------------------------------------------------------------------------------------------------

/* hot */

struct Tracked { // shared by the wrapper and the completion callback; whoever ends the op first does it
  wr_ring* const ring;
  wr_op op;

  Tracked(wr_ring* where, const wr_op& what) : ring{where}, op{what} {}

  bool writable() const { return wr_process_ring() == ring; } // not after a fork or a switch-off
  void end(int status) {
    if (writable()) wr_op_end(ring, &op, status);
  }
  void fail(const char* what) {
    if (!writable()) return;
    wr_note_failure(ring, what); // cold: it is the first that is noted
    wr_op_end(ring, &op, WR_FAILED);
  }
};

class WatchedWork final : public Work {
 public:
  WatchedWork(intrusive_ptr<Work> inner, std::shared_ptr<Tracked> tracked, bool end_is_seen)
      : Work(-1, inner->retrieveOpType()),
        inner_{std::move(inner)},
        tracked_{std::move(tracked)},
        end_is_seen_{end_is_seen} {}

  ~WatchedWork() override {
    if (!end_is_seen_) tracked_->end(WR_DROPPED);
  }

  bool isCompleted() override {
    const bool completed = inner_->isCompleted();
    if (completed) end_if_unseen();
    else if (tracked_->writable()) wr_op_polled(tracked_->ring, &tracked_->op);
    return completed;
  }

  bool wait(std::chrono::milliseconds timeout) override {
    if (!tracked_->writable()) return inner_->wait(timeout);
    const int row = wr_wait_begin(tracked_->ring, &tracked_->op, WR_WAIT_CALL);
    bool result = false;
    try {
      result = inner_->wait(timeout);
    } catch (const std::exception& error) {
      tracked_->fail(error.what());
      wr_wait_end(tracked_->ring, &tracked_->op, row);
      throw;
    }
    end_if_unseen();
    wr_wait_end(tracked_->ring, &tracked_->op, row);
    return result;
  }

  intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future = inner_->getFuture();
    if (tracked_->writable()) wr_op_flag(tracked_->ring, &tracked_->op, WR_FLAG_FUTURE_TAKEN);
    return future;
  }

  bool isSuccess() const override { return inner_->isSuccess(); }
  std::exception_ptr exception() const override { return inner_->exception(); }
  int sourceRank() const override { return inner_->sourceRank(); }
  std::vector<at::Tensor> result() override { return inner_->result(); }
  void synchronize() override { inner_->synchronize(); }
  void blockCurrentStream() override { inner_->blockCurrentStream(); }
  void abort() override { inner_->abort(); }
  intrusive_ptr<c10::ivalue::Future> getFutureResult() override { return inner_->getFutureResult(); }
  float getDuration() const override { return inner_->getDuration(); }
  uint64_t getSequencenumber() const override { return inner_->getSequencenumber(); }

 private:
  void end_if_unseen() {
    if (!end_is_seen_) tracked_->end(WR_DONE);
  }

  const intrusive_ptr<Work> inner_;
  const std::shared_ptr<Tracked> tracked_;
  const bool end_is_seen_; // a completion callback is set; else the end is inferred from wait()
};

// ---- the kernel -------------------------------------------------------------------------------------------------------

// One call on its way through the kernel. Where the end is not ours to see (no Gloo), the op lives on the stack.
struct Call {
  wr_ring* ring = nullptr; // null: not observed
  std::shared_ptr<Tracked> tracked;
  wr_op own{};

  wr_op& op() { return tracked ? tracked->op : own; }
  bool writable() const { return wr_process_ring() == ring; }
};

// Fails open: whatever goes wrong on our side of the call leaves the operation as it is.
void before_call(size_t id, const c10::IValue* arguments, Call& call) noexcept try {
  const Places& p = places[id];
  if (p.group < 0) return;
  Sizes in, out;
  if (p.input >= 0) in.add(arguments[p.input]);
  if (p.output >= 0) out.add(arguments[p.output]);
  const auto process_group = object_of<ProcessGroup>(arguments[p.group]);
  Group* group = find_group(process_group.get());
  if (!group) group = meet_group(process_group);
  wr_ring* ring = wr_process_ring();
  if (!group || group->slot < 0 || !ring) return;
  const bool gloo = group->gloo_devices >> static_cast<int>(in.dtype >= 0 ? in.device : out.device) & 1;
  Splits splits;
  call.own.comm_slot = static_cast<uint16_t>(group->slot);
  const bool as_made = gloo && kOperators[id].kind >= WR_SEND;
  const uint32_t timeout_ms = as_made ? group->first_timeout_ms : group->timeout_ms.load(std::memory_order_relaxed);
  fill_op(call.own, kOperators[id], p, arguments, in, out, splits, timeout_ms);
  if (gloo) call.tracked = std::make_shared<Tracked>(ring, call.own);
  else call.own.flags |= WR_FLAG_END_INFERRED; // nothing to wait on from the host: what is known is that it was issued
  if (__builtin_expect(__atomic_load_n(&ring->gate_closed, __ATOMIC_RELAXED), 0)) wr_gate_pass(ring);
  wr_op_begin(ring, &call.op());
  call.op().split_in = call.op().split_out = nullptr;
  call.ring = ring;
} catch (...) {
  // Without call.ring the operation passes unobserved.
}

void failed_call(Call& call, const char* what) noexcept {
  if (!call.writable()) return;
  wr_note_failure(call.ring, what);
  wr_op_end(call.ring, &call.op(), WR_FAILED);
}

void done_call(Call& call) noexcept {
  if (call.writable()) wr_op_end(call.ring, &call.op(), WR_DONE);
}

// Operators whose work objects have no future (Gloo's reduce-scatter): asking throws, which costs 10 us, so it is asked
// once. The others' ends are seen; the end of these is inferred from wait().
std::atomic<bool> futureless[kOperatorCount];

bool follow_future(size_t id, Work& work, const std::shared_ptr<Tracked>& tracked) {
  if (tracked->op.kind >= WR_SEND || futureless[id].load(std::memory_order_relaxed)) return false;
  try {
    work.getFuture()->addCallback([tracked](c10::ivalue::Future& future) {
      if (future.hasError()) tracked->fail(future.tryRetrieveErrorMessage().c_str());
      else tracked->end(WR_DONE);
    });
    return true;
  } catch (const std::exception&) {
    futureless[id].store(true, std::memory_order_relaxed);
    return false;
  }
}

void watch_work(size_t id, const std::shared_ptr<Tracked>& tracked, c10::IValue& result) noexcept try {
  wr_op_issued(tracked->ring, &tracked->op);
  auto work = object_of<Work>(result);
  if (!work) {
    tracked->end(WR_DONE);
    return;
  }
  const bool end_is_seen = follow_future(id, *work, tracked);
  if (!end_is_seen) wr_op_flag(tracked->ring, &tracked->op, WR_FLAG_END_INFERRED);
  result = c10::IValue(intrusive_ptr<Work>(c10::make_intrusive<WatchedWork>(std::move(work), tracked, end_is_seen)));
} catch (...) {
  tracked->end(WR_DROPPED);
}

template <size_t ID>
void kernel(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::BackendSelect);
  if (!enabled.load(std::memory_order_relaxed)) {
    op.redispatchBoxed(below, stack);
    return;
  }
  Call call;
  before_call(ID, stack->data() + (stack->size() - places[ID].count), call);
  if (!call.ring) {
    op.redispatchBoxed(below, stack);
    return;
  }
  constexpr bool blocks_inside = kOperators[ID].kind == WR_MONITORED_BARRIER;
  const int row = blocks_inside ? wr_wait_begin(call.ring, &call.op(), WR_WAIT_ENTRY) : -1;
  try {
    op.redispatchBoxed(below, stack);
  } catch (const std::exception& error) {
    failed_call(call, error.what());
    if (blocks_inside) wr_wait_end(call.ring, &call.op(), row);
    throw;
  }
  if (blocks_inside || !call.tracked) done_call(call);
  else watch_work(ID, call.tracked, stack->back());
  if (blocks_inside) wr_wait_end(call.ring, &call.op(), row);
}

/* end hot */

template <size_t... ID>
void register_kernels(torch::Library& library, std::index_sequence<ID...>) {
  (library.impl(kOperators[ID].name, torch::CppFunction::makeFromBoxedFunction<&kernel<ID>>()), ...);
}

} // namespace

TORCH_LIBRARY_IMPL(c10d, BackendSelect, library) {
  for (size_t id = 0; id < kOperatorCount; ++id) read_schema(id);
  register_kernels(library, std::make_index_sequence<kOperatorCount>());
}

TORCH_LIBRARY(whichrank, library) {
  library.def("open_group(__torch__.torch.classes.c10d.ProcessGroup group) -> ()", &open_group);
  library.def("close_group(__torch__.torch.classes.c10d.ProcessGroup group) -> ()", &close_group);
  library.def("retime_groups() -> ()", &retime_groups);
}

extern "C" {

// Switch on. `identity` is what the environment says of this process; rank -1 where it says nothing.
WR_API void wr_c10d_enable(const char* dir, const wr_identity* identity) {
  ring_dir = dir;
  host_name = identity->host;
  job_name = identity->job;
  environment_identity = *identity;
  pthread_atfork(nullptr, nullptr, forget_all_in_child);
  enabled.store(true);
}

// A ring before the first group, so that a rank that never gets to init_process_group is seen.
WR_API int wr_c10d_open_ring() {
  wr_identity identity = environment_identity;
  identity.host = host_name.c_str();
  identity.job = job_name.c_str();
  wr_ring* ring = wr_open_process_ring(ring_dir.c_str(), &identity, release_dead_groups);
  if (ring) wr_sensor_set(ring, WR_SENSOR_C10D, WR_SENSOR_ON, "");
  return ring != nullptr;
}

WR_API void wr_c10d_switch(int on) { enabled.store(on != 0); }

}
