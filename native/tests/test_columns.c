/* Loops over columns: what they find, and that no number of a batch leads them out of a table. What they find in all sorts
 * of batches is held against plain Python in tests/unit/columns. */
#include <errno.h>
#include <string.h>

#include "check.h"
#include "whichrank/columns.h"

enum { FAR = 1 << 30 };

static uint8_t parts[256];

static uint64_t sign_of(uint8_t kind, uint8_t dtype, uint8_t op, int32_t peer, uint8_t flags, uint64_t count) {
  uint64_t sign;
  wr_signatures(1, parts, &kind, &dtype, &op, &peer, &flags, &count, &sign);
  return sign;
}

TEST(columns_signature_has_what_belongs_to_the_kind) {
  memset(parts, 0, sizeof parts);
  parts[1] = WR_COUNT | WR_REDUCE_OP, parts[2] = WR_COUNT | WR_PEER, parts[6] = WR_COUNT | WR_MAY_BE_UNEVEN;
  CHECK(sign_of(1, 6, 0, 0, 0, 5) == sign_of(1, 6, 0, 3, 0, 5));
  CHECK(sign_of(1, 6, 0, 0, 0, 5) != sign_of(1, 6, 1, 0, 0, 5));
  CHECK(sign_of(1, 6, 0, 0, 0, 5) != sign_of(1, 6, 0, 0, 0, 6));
  CHECK(sign_of(2, 6, 0, 0, 0, 5) != sign_of(2, 6, 0, -1, 0, 5));
  CHECK(sign_of(9, 6, 0, 0, 0, 5) == sign_of(9, 7, 2, 1, 0, 6));
  CHECK(sign_of(6, 6, 0, 0, WR_FLAG_UNEVEN, 5) == sign_of(6, 6, 0, 0, WR_FLAG_UNEVEN, 6));
  CHECK(sign_of(1, 6, 0, 0, WR_FLAG_UNEVEN, 5) != sign_of(1, 6, 0, 0, WR_FLAG_UNEVEN, 6));
  CHECK(sign_of(1, 6, 0, 0, WR_FLAG_FREE_SIZES, 5) == sign_of(1, 6, 0, 0, WR_FLAG_FREE_SIZES, 6));
}

TEST(columns_rows_are_taken_apart) {
  wr_reported rows[3] = {
      {.rank = 1, .comm_id = 7, .row = {.t_issue_ns = 10, .t_end_ns = 20, .count = 5, .counter = 3, .ordinal = 4, .kind = 1}},
      {.rank = 2, .row = {.kind = 1}},
      {.rank = 0, .row = {.kind = WR_STEP}},
  };
  int64_t rank[3];
  uint64_t comm_id[3], issue[3], end[3], elements[3], sign[3];
  uint32_t counter[3], ordinal[3], wait[3];
  int32_t peer[3];
  uint16_t slot[3];
  uint8_t kind[3], flags[3], status[3];
  wr_columns c = {3,    rank, comm_id, issue, end,   elements, sign, counter, ordinal,
                  wait, peer, slot,    kind,  flags, status,   0};
  wr_take_apart(rows, parts, 2, &c);
  CHECK_EQUAL(c.others, 2);
  CHECK(rank[0] == 1 && comm_id[0] == 7 && issue[0] == 10 && end[0] == 20 && elements[0] == 5);
  CHECK(counter[0] == 3 && ordinal[0] == 4 && kind[2] == WR_STEP);
  CHECK(sign[0] == sign_of(1, 0, 0, 0, 0, 5));
}

TEST(columns_communicators_are_found_by_slot) {
  int32_t in_slot[4] = {0, FAR, -1, 1};
  int64_t comm_of[2] = {0, FAR}, member_at[1] = {0};
  uint64_t id[1] = {70};
  wr_slots table = {2, 2, 2, 1, in_slot, comm_of, member_at, id};
  int64_t rank[7] = {0, 0, 1, 1, 0, -1, FAR}, comm[7], place[7];
  uint16_t slot[7] = {0, 1, 0, 1, 9, 0, 0};
  uint64_t ids[7] = {70, 70, 70, 70, 70, 70, 70};
  CHECK_EQUAL(wr_find_comms(&table, 7, rank, slot, ids, comm, place), 6);
  CHECK(comm[0] == 0 && place[0] == 0);
  for (int i = 1; i < 7; i++) CHECK(comm[i] == -1 && place[i] == -1);
}

TEST(columns_runs_and_counts) {
  int64_t rank[3] = {4, 4, 9}, issue[3] = {INT64_MAX, 5, 1}, end[3] = {INT64_MIN, 30, 2}, begin[3], last[3], ended[3], longs[3];
  wr_runs r = {3, rank, issue, end, 20, begin, last, ended, longs, 0, 0};
  wr_find_runs(&r);
  CHECK_EQUAL(r.runs, 2);
  CHECK(begin[0] == 0 && begin[1] == 2 && last[0] == INT64_MAX && ended[0] == 30 && last[1] == 1);
  CHECK(r.long_ones == 1 && longs[0] == 1);

  int64_t comm[4] = {0, 1, -1, FAR};
  uint32_t wait[4] = {0, UINT32_MAX, 0, 0}, kinds[4] = {0};
  uint8_t kind[4] = {1, 200, 0, 0};
  float counts[2 * 8] = {0};
  double total[2] = {0};
  wr_count_waits(4, comm, wait, 2, 8, counts, total);
  wr_count_kinds(4, comm, kind, 2, 2, kinds);
  CHECK(counts[0] == 1 && counts[8 + 7] == 1 && total[0] == 1 && total[1] == 1);
  CHECK(kinds[1] == 1 && kinds[0] + kinds[2] + kinds[3] == 0);
}

TEST(columns_periods) {
  int64_t at[3] = {0, -1, FAR}, length[3] = {2, 0, 1}, place[3] = {1, 0, 0}, next[3] = {5, 0, 0}, untold[3] = {0};
  uint32_t periods[2] = {7, 8};
  wr_periods table = {3, 2, at, length, place, next, untold, periods};
  int64_t rank[6] = {-1, 0, 0, 0, 1, 2}, ordinal[6] = {1, 4, 5, 6, 1, 1}, leaving[6], to_tell[6];
  uint32_t tokens[6] = {0, 99, 8, 7, 0, 0};
  uint8_t dealt_with[6];
  wr_issued o = {6, rank, ordinal, tokens, 2, dealt_with, leaving, to_tell, 0, 0};
  CHECK_EQUAL(wr_hold_periods(&table, &o), 0);
  CHECK(!dealt_with[0] && dealt_with[1] && dealt_with[2] && dealt_with[3] && !dealt_with[4] && !dealt_with[5]);
  CHECK(next[0] == 7 && place[0] == 1 && untold[0] == 2 && o.to_tells == 1 && to_tell[0] == 0 && o.leavings == 0);
  CHECK_EQUAL(wr_hold_periods(&table, &o), 0); /* all is known */
  CHECK(dealt_with[3] && o.to_tells == 0 && next[0] == 7);
  ordinal[3] = 8;
  CHECK_EQUAL(wr_hold_periods(&table, &o), 0);
  CHECK(o.leavings == 1 && leaving[0] == 0 && next[0] == 7);
  ordinal[3] = 5;
  CHECK_EQUAL(wr_hold_periods(&table, &o), EINVAL);
  ordinal[3] = 9, rank[5] = 0;
  CHECK_EQUAL(wr_hold_periods(&table, &o), EINVAL);
}

enum { COMMS = 2, DEPTH = 2, MEMBERS = 4, OPS = 5 };

typedef struct {
  int64_t size[COMMS], slot_at[COMMS], member_at[COMMS];
  uint32_t last[COMMS], lowest[COMMS], first_ordinal[COMMS * DEPTH], behind_since[MEMBERS], seen[2];
  uint64_t first[COMMS * DEPTH];
  double offset_s[2], first_end_s[COMMS * DEPTH];
  int32_t behind[MEMBERS];
  wr_rounds table;
} rounds;

static void set_up(rounds *r) {
  *r = (rounds){.size = {2, 2}, .slot_at = {0, DEPTH}, .member_at = {0, 2}, .last = {1, 1}, .offset_s = {1, 1}, .seen = {9, 9}};
  r->table = (wr_rounds){COMMS, COMMS * DEPTH, MEMBERS, 2, 2, r->size, r->last, r->slot_at, r->member_at, r->lowest,
                         r->offset_s, r->first, r->first_ordinal, r->first_end_s, r->behind, r->behind_since, r->seen, 1};
}

typedef struct {
  int64_t rank[OPS], comm[OPS], place[OPS], unseen[OPS], differing[OPS], moved[OPS], apart[OPS];
  uint32_t counter[OPS], ordinal[OPS], lap[OPS];
  uint64_t sign[OPS], end_ns[OPS];
  uint8_t kind[OPS], status[OPS];
  wr_completed done;
} completed;

static void point(completed *c, size_t count) {
  for (size_t i = 0; i < count; i++) c->kind[i] = 1, c->status[i] = WR_DONE;
  c->done = (wr_completed){count, c->rank, c->comm, c->place, c->counter, c->ordinal, c->sign, c->end_ns, c->kind, c->status,
                           NULL, c->lap, c->unseen, c->differing, c->moved, c->apart, 0, 0, 0, 0, 0};
}

TEST(columns_rounds_are_held_against_the_first) {
  rounds r;
  completed c = {.rank = {0, 1, 1, 0, 1}, .place = {0, 1, 1, 0, 1}, .counter = {1, 1, 2, 2, 1}, .ordinal = {1, 2, 4, 3, 2},
                 .sign = {5ull << 32, 5ull << 32, 6ull << 32, 7ull << 32, 5ull << 32}, .end_ns = {2000000000, 0, 0, 0, 0}};
  int32_t comm[3], member[3];
  uint32_t counter[3], sign[3], ordinal[3];
  wr_lately lately = {3, 0, comm, member, counter, sign, ordinal};
  set_up(&r);
  point(&c, 4);
  CHECK_EQUAL(wr_hold_rounds(&r.table, &lately, &c.done), 0);
  CHECK(c.done.taken == 4 && lately.next == 1 && counter[0] == 2 && sign[0] == 7 && member[0] == 0);
  CHECK(r.first[1] == (1ull << 32 | 5) && r.first_end_s[1] == 3 && r.first_end_s[0] == 0);
  CHECK(c.done.differings == 1 && c.differing[0] == 3);
  CHECK(c.done.unseens == 3 && c.unseen[0] == 0 && c.unseen[1] == 2 && c.unseen[2] == 3);
  CHECK(r.behind[1] == 1 && r.behind[0] == -1 && c.done.aparts == 2);

  for (int i = 0; i < 4; i++) c.counter[i] = (uint32_t)(3 + 2 * i); /* all in one slot */
  CHECK_EQUAL(wr_hold_rounds(&r.table, &lately, &c.done), EDOM);
  int64_t order[OPS] = {0, 1, 2, FAR};
  CHECK(c.lap[0] == 0 && c.lap[3] == 3);
  c.done.order = order;
  CHECK_EQUAL(wr_hold_rounds(&r.table, &lately, &c.done), 0);
  CHECK_EQUAL(r.first[1] >> 32, 7);
  c.counter[0] = 1, c.done.count = 1, c.done.order = NULL; /* late */
  CHECK_EQUAL(wr_hold_rounds(&r.table, &lately, &c.done), 0);
  CHECK(c.done.taken == 1 && r.first[1] >> 32 == 7);

  set_up(&r);
  c.counter[0] = UINT32_MAX, c.counter[1] = 1, c.done.count = 1; /* counters go round: 1 comes after the highest */
  CHECK_EQUAL(wr_hold_rounds(&r.table, &lately, &c.done), 0);
  CHECK_EQUAL(r.first[1] >> 32, UINT32_MAX);
  c.counter[0] = 1;
  CHECK_EQUAL(wr_hold_rounds(&r.table, &lately, &c.done), 0);
  CHECK_EQUAL(r.first[1] >> 32, 1);
}

TEST(columns_rounds_leave_out_what_fits_nowhere) {
  rounds r;
  completed c = {.rank = {-1, FAR, 0, 0, 0}, .comm = {0, 0, FAR, -1, 1}, .place = {0, 0, 0, 0, FAR}, .counter = {1, 1, 1, 1, 1}};
  wr_lately lately = {0};
  set_up(&r);
  point(&c, OPS);
  CHECK_EQUAL(wr_hold_rounds(&r.table, &lately, &c.done), 0);
  CHECK_EQUAL(c.done.taken, 0);
  memset(c.rank, 0, sizeof c.rank), memset(c.comm, 0, sizeof c.comm), memset(c.place, 0, sizeof c.place);
  c.kind[0] = WR_SEND, c.status[1] = WR_FAILED, c.counter[2] = 0, c.place[3] = -1, c.comm[4] = 1;
  r.slot_at[1] = FAR;
  CHECK_EQUAL(wr_hold_rounds(&r.table, &lately, &c.done), 0);
  CHECK_EQUAL(c.done.taken, 0);
  r.slot_at[1] = DEPTH, r.member_at[1] = FAR;
  CHECK_EQUAL(wr_hold_rounds(&r.table, &lately, &c.done), 0);
  CHECK_EQUAL(c.done.taken, 0);
  r.member_at[1] = 2, r.size[1] = 1;
  CHECK_EQUAL(wr_hold_rounds(&r.table, &lately, &c.done), 0);
  CHECK_EQUAL(c.done.taken, 0);
  r.size[1] = 2;
  CHECK_EQUAL(wr_hold_rounds(&r.table, &lately, &c.done), 0);
  CHECK_EQUAL(c.done.taken, 1);
}

TEST(columns_iterations_are_found_by_the_number_of_the_operation) {
  /* rank 0 has two iterations, rank 1 none, rank 2 one; what the table says of rank 3 is no place in it */
  int64_t first[5] = {0, 2, 2, 3, FAR}, begin[3] = {4, 6, 0}, end[3] = {6, 9, 3};
  wr_iterations table = {4, 3, first, begin, end};
  int64_t rank[11] = {0, 0, 0, 0, 0, 1, 2, 3, 4, -1, FAR}, of[11];
  uint32_t ordinal[11] = {9, 4, 5, 7, 10, 5, UINT32_MAX, 1, 1, 1, 1};
  wr_find_iterations(&table, 11, rank, ordinal, of);
  CHECK(of[0] == 1 && of[1] == -1 && of[2] == 0 && of[3] == 1);
  for (int i = 4; i < 11; i++) CHECK_EQUAL(of[i], -1);
  first[0] = -1, first[1] = FAR;
  wr_find_iterations(&table, 1, rank, ordinal, of);
  CHECK_EQUAL(of[0], -1);
  table.iterations = 0, first[0] = first[1] = 0;
  wr_find_iterations(&table, 1, rank, ordinal, of);
  CHECK_EQUAL(of[0], -1);
}

TEST(columns_iterations_are_added_up) {
  int64_t of[7] = {0, 0, 0, -1, FAR, 1, 1}, rank[7] = {3, 3, 3, 3, 3, 3, 3}, comm[7] = {0, 0, 0, 0, 0, FAR, -1};
  int32_t peer[7] = {3, 3, -1, 3, 3, 3, 3};
  uint16_t stage[7] = {0, 2, 2}, offset[7] = {0, 1, 0};
  uint8_t kind[7] = {1, WR_SEND, WR_SEND, 1, 1, 1, 1};
  uint64_t sort[1] = {77}, messages[2] = {0}, pattern[2] = {0}, turned[2] = {0}, roots[2] = {0}, talks[2] = {0};
  wr_sums s = {7,    2,    1,        of,      rank,   comm,  peer,  stage, offset,
               kind, sort, messages, pattern, turned, roots, talks, 9};
  wr_sum_iterations(&s);
  uint64_t root = wr_mix(77, 1 << 16), sent = wr_mix(77, WR_SEND << 16 | 2);
  CHECK(messages[0] == 2 && pattern[0] == root + 2 * sent && roots[0] == root);
  CHECK_EQUAL(turned[0], root + sent + wr_mix(77, WR_SEND << 16 | 1 << 15 | 1));
  CHECK(talks[0] == wr_mix(3, 1) && s.addressed == 1);
  CHECK(messages[1] + pattern[1] + turned[1] + roots[1] + talks[1] == 0);
}
