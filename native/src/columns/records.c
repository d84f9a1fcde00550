#include "whichrank/columns.h"

enum { SEED = 1 };

static uint64_t signature(uint8_t parts, uint8_t kind, uint8_t dtype, uint8_t reduce_op, int32_t peer, uint8_t flags,
                          uint64_t elements) {
  uint64_t named = kind;
  if (parts & WR_COUNT) named |= (uint64_t)dtype << 8;
  if (parts & WR_REDUCE_OP) named |= (uint64_t)reduce_op << 16;
  if (parts & WR_PEER) named |= (uint64_t)((int64_t)peer + 1) << 24;
  if (!(parts & WR_COUNT) || flags & WR_FLAG_FREE_SIZES || (parts & WR_MAY_BE_UNEVEN && flags & WR_FLAG_UNEVEN))
    elements = 0;
  return wr_mix(wr_mix(named, SEED), elements);
}

void wr_take_apart(const wr_reported *rows, const uint8_t *parts, size_t ranks, wr_columns *c) {
  c->others = 0;
  for (size_t i = 0; i < c->count; i++) {
    const wr_record *r = &rows[i].row;
    c->rank[i] = rows[i].rank;
    c->comm_id[i] = rows[i].comm_id;
    c->t_issue_ns[i] = r->t_issue_ns;
    c->t_end_ns[i] = r->t_end_ns;
    c->elements[i] = r->count;
    c->counter[i] = r->counter;
    c->ordinal[i] = r->ordinal;
    c->wait_us[i] = r->wait_us;
    c->peer[i] = r->peer;
    c->comm_slot[i] = r->comm_slot;
    c->kind[i] = r->kind;
    c->flags[i] = r->flags;
    c->status[i] = r->status;
    c->sign[i] = signature(parts[r->kind], r->kind, r->dtype, r->reduce_op, r->peer, r->flags, r->count);
    c->others += rows[i].rank < 0 || (size_t)rows[i].rank >= ranks || r->kind >= WR_STEP;
  }
}

void wr_signatures(size_t count, const uint8_t *parts, const uint8_t *kind, const uint8_t *dtype, const uint8_t *reduce_op,
                   const int32_t *peer, const uint8_t *flags, const uint64_t *elements, uint64_t *sign) {
  for (size_t i = 0; i < count; i++)
    sign[i] = signature(parts[kind[i]], kind[i], dtype[i], reduce_op[i], peer[i], flags[i], elements[i]);
}

size_t wr_find_comms(const wr_slots *t, size_t count, const int64_t *rank, const uint16_t *slot, const uint64_t *id,
                     int64_t *comm, int64_t *place) {
  size_t unknown = 0;
  for (size_t i = 0; i < count; i++) {
    int64_t member = -1, of = -1;
    if (rank[i] >= 0 && (size_t)rank[i] < t->ranks && slot[i] < t->slots)
      member = t->in_slot[(size_t)rank[i] * t->slots + slot[i]];
    if (member >= 0 && (size_t)member < t->members) of = t->comm_of[member];
    if (of >= 0 && ((size_t)of >= t->comms || t->id[of] != id[i])) of = -1;
    comm[i] = of;
    place[i] = of < 0 ? -1 : member - t->member_at[of];
    unknown += of < 0;
  }
  return unknown;
}

void wr_find_runs(wr_runs *r) {
  r->runs = r->long_ones = 0;
  int64_t issue = INT64_MIN, end = INT64_MIN;
  for (size_t i = 0; i < r->count; i++) {
    if (i == 0 || r->rank[i] != r->rank[i - 1]) {
      r->begin[r->runs++] = (int64_t)i;
      issue = end = INT64_MIN;
    }
    if (r->issue_ns[i] > issue) issue = r->issue_ns[i];
    if (r->end_ns[i] > end) end = r->end_ns[i];
    r->last_issue_ns[r->runs - 1] = issue;
    r->last_end_ns[r->runs - 1] = end;
    int64_t took = (int64_t)((uint64_t)r->end_ns[i] - (uint64_t)r->issue_ns[i]); /* nobody's number makes it fail */
    if (took >= r->long_ns) r->longs[r->long_ones++] = (int64_t)i;
  }
}
