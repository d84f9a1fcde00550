/* The hot path: what every operation of a training job runs through.
 *
 * About 40 ns for begin and 40 ns for end on one core, most of it the two clock reads. Nothing here may block,
 * allocate or enter the kernel (`clock_gettime` is answered by the vDSO; `gettid` runs once per thread); a unit
 * test greps the marked region for what would. When a table is full the operation goes on without its row and is
 * counted; the communicator's counters, on which the verdict rests, are always kept.
 */
#define _GNU_SOURCE 1
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "atomics.h"
#include "internal.h"
#include "whichrank/ring.h"

/* initial-exec: four bytes of the static TLS reserve, no call on access. */
static __thread uint32_t thread_id __attribute__((tls_model("initial-exec")));

static uint32_t first_thread_id(void) { return thread_id = (uint32_t)syscall(SYS_gettid); }

/* hot */

uint64_t wr_now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static uint32_t this_thread(void) { return thread_id ? thread_id : first_thread_id(); }

/* Completions out of order are kept in a window of bits behind `done`. The meaning of a bit turns over with every lap
 * of the window (set means complete in even laps, clear in odd ones), so nobody ever has to clear it: a late clear by
 * a thread that was preempted would wipe out the completion of one window later. */
static int is_marked(const uint64_t *bits, uint64_t window, uint64_t seq) {
  uint64_t at = seq - 1;
  return (LOAD_ACQUIRE(&bits[at % window / 64]) >> at % 64 & 1) != (at / window & 1);
}

static void mark(uint64_t *bits, uint64_t window, uint64_t seq) {
  uint64_t at = seq - 1, bit = UINT64_C(1) << at % 64, *word = &bits[at % window / 64];
  if (at / window & 1)
    __atomic_fetch_and(word, ~bit, __ATOMIC_ACQ_REL);
  else
    __atomic_fetch_or(word, bit, __ATOMIC_ACQ_REL);
}

/* Operation `counter` is complete: move `done` over everything complete without a gap. Lock-free. A completion more
 * than a window ahead of the gap cannot be kept; when all that were issued are complete, `done` catches up anyway. */
static void mark_done(uint64_t *done, uint64_t *bits, uint64_t window, uint32_t counter, uint64_t issued,
                      uint64_t completed) {
  uint64_t base = LOAD_ACQUIRE(done), all = completed >= issued ? issued : 0;
  uint64_t seq = base + (uint64_t)(int64_t)(int32_t)(counter - (uint32_t)base); /* the counter wraps at 2^32 */
  if (seq - base - 1 < window) mark(bits, window, seq);
  for (;;) {
    uint64_t next = base + 1;
    if (!is_marked(bits, window, next)) {
      if (next > all) return;
      mark(bits, window, next);
    }
    if (wr_cas64(done, &base, next)) base = next;
  }
}

static uint64_t pair_key(const wr_op *op, uint8_t epoch) {
  uint64_t low = (uint64_t)op->comm_slot | (uint64_t)epoch << 16 | (uint64_t)op->kind << 24 | (uint64_t)op->tag << 32;
  return wr_mix64(low ^ wr_mix64((uint32_t)op->peer)) | 1;
}

enum { PROBES = 32 };

static void describe_pair(wr_pair *p, const wr_op *op) {
  STORE(&p->comm_slot, op->comm_slot);
  STORE(&p->epoch, op->epoch);
  STORE(&p->peer, op->peer);
  STORE(&p->tag, op->tag);
  STORE_RELEASE(&p->kind, op->kind);
}

/* A free row is all zero and its key is the claim, so two threads with the same new key meet in the same row; each
 * writes the same description, and a reader takes the row only once something was issued on it. */
static int find_pair(wr_ring *ring, const wr_op *op, uint64_t key) {
  for (int probe = 0; probe < PROBES; probe++) {
    int at = (int)((key + (uint64_t)probe) % WR_PAIRS);
    if (LOAD(&ring->pair[at].key) != key) continue;
    if (!LOAD_ACQUIRE(&ring->pair[at].kind)) describe_pair(&ring->pair[at], op); /* claimed a moment ago */
    return at;
  }
  for (int probe = 0; probe < PROBES; probe++) {
    int at = (int)((key + (uint64_t)probe) % WR_PAIRS);
    wr_pair *p = &ring->pair[at];
    uint64_t holder = 0;
    if (!wr_cas64(&p->key, &holder, key) && holder != key) continue;
    describe_pair(p, op);
    return at;
  }
  ADD(&ring->header.dropped_pairs, 1);
  return -1;
}

static int claim_row(uint64_t *used) {
  uint64_t map = LOAD(used);
  while (~map) {
    int row = __builtin_ctzll(~map);
    if (wr_cas64(used, &map, map | UINT64_C(1) << row)) return row;
  }
  return -1;
}

static void release_row(uint64_t *used, int row) {
  __atomic_fetch_and(used, ~(UINT64_C(1) << row), __ATOMIC_ACQ_REL);
}

static void fill_row(wr_ring *ring, const wr_op *op) {
  wr_inflight *r = &ring->inflight[op->row];
  uint32_t version = LOAD(&r->version) | 1u;
  STORE_RELEASE(&r->version, version);
  WR_FENCE();
  STORE(&r->state, 1u);
  STORE(&r->trace_id.comm_id, op->comm_id);
  STORE(&r->trace_id.counter, op->counter);
  STORE(&r->trace_id.extension, 0u);
  STORE(&r->t_issue_ns, op->t_issue_ns);
  STORE(&r->t_start_ns, op->t_start_ns);
  STORE(&r->t_return_ns, 0);
  STORE(&r->wait_since_ns, 0);
  STORE(&r->polled_ns, 0);
  STORE(&r->count, op->count);
  STORE(&r->out_count, op->out_count);
  STORE(&r->signature, op->signature);
  STORE(&r->issue_tid, op->tid);
  STORE(&r->wait_tid, 0u);
  STORE(&r->peer, op->peer);
  STORE(&r->tag, op->tag);
  STORE(&r->ordinal, op->ordinal);
  STORE(&r->timeout_ms, op->timeout_ms);
  STORE(&r->comm_slot, op->comm_slot);
  STORE(&r->epoch, op->epoch);
  STORE(&r->kind, op->kind);
  STORE(&r->dtype, op->dtype);
  STORE(&r->reduce_op, op->reduce_op);
  STORE(&r->flags, op->flags);
  STORE_RELEASE(&r->version, version + 1);
}

static void keep_splits(wr_ring *ring, const wr_op *op) {
  uint32_t ticket = ADD(&ring->splits_head, 1) - 1; /* ADD returns the sum */
  wr_splits *s = &ring->splits[ticket % WR_SPLIT_ROWS];
  STORE_RELEASE(&s->seq, 2 * (uint64_t)ticket + 1);
  WR_FENCE();
  STORE(&s->comm_id, op->comm_id);
  STORE(&s->counter, op->counter);
  STORE(&s->ordinal, op->ordinal);
  STORE(&s->count, op->count);
  STORE(&s->out_count, op->out_count);
  uint32_t splits = op->split_in && op->split_out ? (op->splits < WR_SPLITS ? op->splits : WR_SPLITS) : 0;
  STORE(&s->splits, splits);
  for (uint32_t i = 0; i < splits; i++) {
    STORE(&s->split_in[i], (uint32_t)op->split_in[i]);
    STORE(&s->split_out[i], (uint32_t)op->split_out[i]);
  }
  STORE_RELEASE(&s->seq, 2 * (uint64_t)ticket + 2);
}

/* The frame turns to the block of this operation. `op_counter` only grows, though operations begin on several threads
 * at once, and a count that comes meanwhile may still go to the block before: that is all the order there is. */
static void begin_frame_block(wr_ring *ring, const wr_op *op) {
  uint64_t at = op->ordinal % WR_FRAME_BLOCKS;
  wr_block *b = &ring->frame.block[at];
  for (int i = 0; i < WR_FRAME_CHANNELS; i++) {
    STORE(&ring->frame_peer[at][i], 0);
    STORE(&b->channel[i].send_count, 0);
    STORE(&b->channel[i].recv_count, 0);
  }
  STORE_RELEASE(&b->trace_id.comm_id, op->comm_id); /* after the counts: who sees the new name sees them from zero */
  STORE_RELEASE(&b->trace_id.counter, op->counter);
  uint64_t latest = LOAD(&ring->frame.op_counter);
  for (;;) {
    int32_t ahead = (int32_t)(op->ordinal - (uint32_t)latest); /* the ordinal wraps at 2^32 */
    if (ahead <= 0) return;
    if (wr_cas64(&ring->frame.op_counter, &latest, latest + (uint32_t)ahead)) break;
  }
  STORE_RELEASE(&ring->frame.kernel_index, at);
}

/* The row of an operation must not be written after it was given to another one. Whoever touches it holds the
 * operation; the last to let go after its end releases the row. The word is the operation's own: no contention. */
static const uint32_t ENDED = UINT32_C(1) << 31;

static int hold(wr_op *op) {
  if (op->row < 0) return 0;
  uint32_t seen = LOAD(&op->holders);
  while (!(seen & ENDED))
    if (wr_cas32(&op->holders, &seen, seen + 1)) return 1;
  return 0;
}

static void let_go(wr_ring *ring, wr_op *op) {
  int row = op->row; /* read before: once it is let go, the operation may vanish */
  if (__atomic_sub_fetch(&op->holders, 1, __ATOMIC_ACQ_REL) != ENDED || row < 0) return;
  wr_inflight *r = &ring->inflight[row];
  STORE(&r->state, 0u);
  STORE_RELEASE(&r->version, LOAD(&r->version) + 2);
  release_row(&ring->inflight_used, row);
}

void wr_op_begin(wr_ring *ring, wr_op *op) {
  op->row = op->pair = -1;
  if (op->comm_slot >= WR_COMMS) { /* its communicator found no slot, which is counted */
    op->holders = ENDED;
    op->ended = 1;
    return;
  }
  wr_comm *c = &ring->comm[op->comm_slot];
  op->epoch = (uint8_t)LOAD(&c->epoch);
  op->tid = this_thread();
  op->t_issue_ns = wr_now_ns();
  op->ordinal = (uint32_t)ADD(&ring->header.ordinal, 1);
  op->comm_id = LOAD(&c->comm_id);
  if (op->kind >= WR_SEND) {
    op->pair = (int16_t)find_pair(ring, op, pair_key(op, op->epoch));
    uint32_t mine = LOAD(&c->group_rank);
    uint64_t from = op->kind == WR_SEND ? mine : (uint32_t)op->peer;
    uint64_t to = op->kind == WR_SEND ? (uint32_t)op->peer : mine;
    op->comm_id = wr_mix64(op->comm_id ^ wr_mix64(from << 32 | to) ^ op->tag);
    if (op->pair >= 0) {
      wr_pair *p = &ring->pair[op->pair];
      op->counter = (uint32_t)ADD(&p->issued, 1);
      STORE(&p->last_issue_ns, op->t_issue_ns);
      STORE(&p->last_tid, op->tid);
    }
  } else {
    op->counter = (uint32_t)ADD(&c->issued, 1);
  }
  STORE(&c->last_issue_ns, op->t_issue_ns);
  STORE(&c->last_tid, op->tid);
  STORE(&c->last_kind, (uint32_t)op->kind);
  op->row = (int16_t)claim_row(&ring->inflight_used);
  if (op->row >= 0) {
    fill_row(ring, op);
  } else {
    op->flags |= WR_FLAG_UNTRACKED;
    ADD(&ring->header.dropped_inflight, 1);
  }
  if (op->kind == WR_ALL_TO_ALL) keep_splits(ring, op);
  begin_frame_block(ring, op);
}

void wr_op_issued(wr_ring *ring, wr_op *op) {
  if (!hold(op)) return;
  STORE(&ring->inflight[op->row].t_return_ns, wr_now_ns());
  STORE(&ring->inflight[op->row].state, 2u);
  let_go(ring, op);
}

void wr_op_flag(wr_ring *ring, wr_op *op, uint16_t flags) {
  __atomic_fetch_or(&op->flags, flags, __ATOMIC_RELAXED);
  if (!hold(op)) return;
  __atomic_fetch_or(&ring->inflight[op->row].flags, flags, __ATOMIC_RELAXED);
  let_go(ring, op);
}

/* Who asks again this soon does little else meanwhile: it waits. */
enum { POLLS_NS = 20 * 1000 * 1000 };

void wr_op_polled(wr_ring *ring, wr_op *op) {
  if (!hold(op)) return;
  uint64_t now = wr_now_ns(), last = __atomic_exchange_n(&ring->inflight[op->row].polled_ns, now, __ATOMIC_RELAXED);
  if (last && now - last < POLLS_NS) ADD(&op->wait_ns, now - last);
  let_go(ring, op);
}

/* A wait row is claimed and filled by the thread that is about to block. -1 when all rows are taken, which is counted. */
static int claim_wait(wr_ring *ring, const wr_wait *content) {
  uint32_t map = LOAD(&ring->waits_used);
  int row = -1;
  while (~map) {
    row = __builtin_ctz(~map);
    if (wr_cas32(&ring->waits_used, &map, map | 1u << row)) break;
    row = -1;
  }
  if (row < 0) {
    ADD(&ring->header.dropped_waits, 1);
    return -1;
  }
  wr_wait *w = &ring->wait[row];
  uint32_t version = LOAD(&w->version) | 1u;
  STORE_RELEASE(&w->version, version);
  WR_FENCE();
  STORE(&w->since_ns, content->since_ns);
  STORE(&w->comm_id, content->comm_id);
  STORE(&w->counter, content->counter);
  STORE(&w->peer, content->peer);
  STORE(&w->comm_slot, content->comm_slot);
  STORE(&w->epoch, content->epoch);
  STORE(&w->kind, content->kind);
  STORE(&w->how, content->how);
  STORE(&w->dtype, content->dtype);
  STORE(&w->reduce_op, content->reduce_op);
  STORE(&w->inflight, content->inflight);
  STORE(&w->count, content->count);
  STORE(&w->timeout_ms, content->timeout_ms);
  STORE(&w->tag, content->tag);
  STORE(&w->t_issue_ns, content->t_issue_ns);
  STORE(&w->tid, this_thread());
  STORE_RELEASE(&w->version, version + 1);
  return row;
}

static void release_wait(wr_ring *ring, int row) {
  wr_wait *w = &ring->wait[row];
  STORE(&w->tid, 0u);
  STORE_RELEASE(&w->version, LOAD(&w->version) + 2);
  __atomic_fetch_and(&ring->waits_used, ~(1u << row), __ATOMIC_ACQ_REL);
}

int wr_wait_begin(wr_ring *ring, wr_op *op, int how) {
  if (LOAD(&op->ended)) return -1;
  uint64_t now = wr_now_ns();
  STORE(&op->wait_since_ns, now);
  if (hold(op)) {
    STORE(&ring->inflight[op->row].wait_tid, this_thread());
    STORE(&ring->inflight[op->row].wait_since_ns, now);
    let_go(ring, op);
  }
  wr_wait content = {.since_ns = now, .comm_id = op->comm_id, .counter = op->counter, .peer = op->peer,
                     .comm_slot = op->comm_slot, .epoch = op->epoch, .kind = op->kind, .how = (uint8_t)how,
                     .dtype = op->dtype, .reduce_op = op->reduce_op,
                     .inflight = op->row >= 0 ? (uint8_t)op->row : 255, .count = op->count,
                     .timeout_ms = op->timeout_ms, .tag = op->tag, .t_issue_ns = op->t_issue_ns};
  return claim_wait(ring, &content);
}

void wr_wait_end(wr_ring *ring, wr_op *op, int row) {
  uint64_t since = __atomic_exchange_n(&op->wait_since_ns, 0, __ATOMIC_RELAXED);
  if (since) ADD(&op->wait_ns, wr_now_ns() - since);
  if (row >= 0) release_wait(ring, row);
  if (!hold(op)) return;
  STORE(&ring->inflight[op->row].wait_since_ns, 0);
  let_go(ring, op);
}

/* A wait that is for no operation. */
static int claim_outside(wr_ring *ring, uint8_t kind, int32_t peer, uint32_t tag, uint32_t count) {
  uint64_t now = wr_now_ns();
  wr_wait content = {.since_ns = now, .peer = peer, .comm_slot = UINT16_MAX, .kind = kind, .how = WR_WAIT_CALL,
                     .dtype = 255, .reduce_op = 255, .inflight = 255, .count = count, .tag = tag, .t_issue_ns = now};
  return claim_wait(ring, &content);
}

int wr_remote_wait_begin(wr_ring *ring, int32_t peer) { return claim_outside(ring, WR_REMOTE_CALL, peer, 0, 0); }

int wr_meeting_begin(wr_ring *ring, int32_t first, uint32_t stride, uint32_t size) {
  return claim_outside(ring, WR_MEETING, first, stride, size);
}

void wr_outside_wait_end(wr_ring *ring, int row) {
  if (row >= 0 && row < WR_WAITS) release_wait(ring, row);
}

/* Claim the place of ticket t, fill it, publish. A writer that was stopped for a whole round of the ring finds its
 * place taken (or leaves it odd); the late one is dropped and counted, so no record is ever torn. */
void wr_push(wr_ring *ring, const wr_record *record) {
  uint64_t ticket = __atomic_fetch_add(&ring->header.head, 1, __ATOMIC_ACQ_REL);
  wr_record *to = &ring->record[ticket % WR_RECORDS];
  uint64_t before = LOAD(&to->seq), writing = 2 * ticket + 1;
  if ((before & 1) || before > writing || !wr_cas64(&to->seq, &before, writing)) {
    ADD(&ring->header.dropped_records, 1);
    return;
  }
  WR_FENCE();
  const wr_word *from = (const wr_word *)(const void *)record;
  wr_word *words = (wr_word *)(void *)to;
  for (size_t i = 1; i < sizeof *record / sizeof *words; i++) STORE(&words[i], from[i]);
  STORE_RELEASE(&to->seq, writing + 1);
}

void wr_op_end(wr_ring *ring, wr_op *op, int status) {
  uint32_t seen = LOAD(&op->holders);
  do
    if (seen & ENDED) return;
  while (!wr_cas32(&op->holders, &seen, (seen + 1) | ENDED));
  STORE(&op->ended, 1u);
  uint64_t now = wr_now_ns(), since = LOAD(&op->wait_since_ns);
  uint64_t polled = op->row >= 0 ? LOAD(&ring->inflight[op->row].polled_ns) : 0;
  if (!since && polled && now - polled < POLLS_NS) since = polled;
  uint64_t waited = LOAD(&op->wait_ns) + (since ? now - since : 0);
  if (waited > now - op->t_issue_ns) waited = now - op->t_issue_ns; /* by two threads at once */
  wr_comm *c = &ring->comm[op->comm_slot];
  if ((uint8_t)LOAD(&c->epoch) == op->epoch) {
    /* A pair is not given away before all its operations are complete, unless its communicator slot was reused. */
    if (op->pair >= 0 && LOAD(&ring->pair[op->pair].key) == pair_key(op, op->epoch)) {
      wr_pair *p = &ring->pair[op->pair];
      uint64_t completed = __atomic_add_fetch(&p->completed, 1, __ATOMIC_ACQ_REL);
      STORE(&p->last_done_ns, now);
      mark_done(&p->done, p->done_bits, WR_PAIR_WINDOW, op->counter, LOAD(&p->issued), completed);
    } else if (op->kind < WR_SEND) {
      uint64_t completed = __atomic_add_fetch(&c->completed, 1, __ATOMIC_ACQ_REL);
      mark_done(&c->done, c->done_bits, WR_COMM_WINDOW, op->counter, LOAD(&c->issued), completed);
    }
    STORE(&c->last_done_ns, now);
    if (status == WR_FAILED) ADD(&c->failed, 1);
  }
  wr_record record = {
      .t_issue_ns = op->t_issue_ns, .t_start_ns = op->t_start_ns, .t_end_ns = now, .count = op->count,
      .counter = op->counter, .ordinal = op->ordinal,
      .wait_us = waited / 1000 > UINT32_MAX ? UINT32_MAX : (uint32_t)(waited / 1000), .peer = op->peer,
      .comm_slot = op->comm_slot, .epoch = op->epoch, .kind = op->kind, .dtype = op->dtype,
      .reduce_op = op->reduce_op, .flags = (uint8_t)LOAD(&op->flags), .status = (uint8_t)status};
  wr_push(ring, &record);
  let_go(ring, op);
}

/* end hot */

static uint32_t steps;
static uint64_t stepped_at = UINT64_MAX; /* ordinal at the latest step */

void wr_step(wr_ring *ring) {
  uint64_t ordinal = LOAD(&ring->header.ordinal);
  STORE(&ring->step_tid, this_thread());
  if (__atomic_exchange_n(&stepped_at, ordinal, __ATOMIC_ACQ_REL) == ordinal) return;
  uint64_t now = wr_now_ns();
  uint32_t count = __atomic_add_fetch(&steps, 1, __ATOMIC_RELAXED);
  STORE_RELEASE(&ring->gate.steps, count);
  wr_record record = {.t_issue_ns = now, .t_end_ns = now, .counter = count,
                      .ordinal = (uint32_t)ordinal, .peer = -1, .comm_slot = UINT16_MAX, .kind = WR_STEP,
                      .status = WR_DONE};
  wr_push(ring, &record);
}

void wr_work(wr_ring *ring, uint64_t elements, uint32_t length) {
  uint64_t now = wr_now_ns();
  wr_record record = {.t_issue_ns = now, .t_end_ns = now, .count = elements, .counter = length,
                      .ordinal = (uint32_t)LOAD(&ring->header.ordinal), .peer = -1, .comm_slot = UINT16_MAX,
                      .kind = WR_WORK, .status = WR_DONE};
  wr_push(ring, &record);
}

void wr_backward(wr_ring *ring, uint64_t began_ns, uint64_t ended_ns) {
  wr_record record = {.t_issue_ns = began_ns, .t_end_ns = ended_ns, .ordinal = (uint32_t)LOAD(&ring->header.ordinal),
                      .peer = -1, .comm_slot = UINT16_MAX, .kind = WR_PASS, .status = WR_DONE};
  wr_push(ring, &record);
}

void wr_forget_thread(void) { thread_id = 0; }
