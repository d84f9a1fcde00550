#include <errno.h>

#include "whichrank/columns.h"

enum { OUT = -1 };

/* Hold the operations from `begin` to `end`, all of one rank that is in the table, against its period. */
static void hold_period(const wr_periods *t, wr_issued *o, size_t begin, size_t end) {
  int64_t rank = o->rank[begin], next = t->next[rank], place = t->place[rank], length = t->length[rank];
  const uint32_t *period = t->periods + t->at[rank];
  size_t i = begin;
  while (i < end && o->ordinal[i] < next) i++; /* known already */
  for (; i < end; i++, next++) {
    if (o->ordinal[i] != next || o->tokens[i] != period[place]) {
      o->leaving[o->leavings++] = rank;
      return;
    }
    if (++place == length) place = 0;
  }
  for (i = begin; i < end; i++) o->dealt_with[i] = 1;
  if (next == t->next[rank]) return;
  t->untold[rank] += next - t->next[rank];
  t->next[rank] = next;
  t->place[rank] = place;
  if (t->untold[rank] >= o->tell_after) o->to_tell[o->to_tells++] = rank;
}

static int is_in(const wr_periods *t, int64_t rank) {
  if (rank < 0 || (size_t)rank >= t->ranks || t->at[rank] == OUT) return 0;
  return t->at[rank] >= 0 && t->length[rank] > 0 && (size_t)(t->at[rank] + t->length[rank]) <= t->tokens;
}

int wr_hold_periods(const wr_periods *t, wr_issued *o) {
  for (size_t i = 1; i < o->count; i++) {
    if (o->rank[i] < o->rank[i - 1]) return EINVAL;
    if (o->rank[i] == o->rank[i - 1] && o->ordinal[i] <= o->ordinal[i - 1]) return EINVAL;
  }
  o->leavings = o->to_tells = 0;
  for (size_t begin = 0, end; begin < o->count; begin = end) {
    for (end = begin; end < o->count && o->rank[end] == o->rank[begin]; end++) o->dealt_with[end] = 0;
    if (is_in(t, o->rank[begin])) hold_period(t, o, begin, end);
  }
  return 0;
}
