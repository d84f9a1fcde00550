#include <errno.h>

#include "whichrank/columns.h"

static const uint32_t LEFT_OUT = UINT32_MAX; /* no lap: there are fewer than 2^29 */

static int is_compared(const wr_rounds *t, const wr_completed *o, size_t i) {
  int64_t comm = o->comm[i], place = o->place[i];
  return o->kind[i] < WR_SEND && o->status[i] == WR_DONE && o->counter[i] > 0 && comm >= 0 && (size_t)comm < t->comms &&
         t->size[comm] > 1 && place >= 0 && place < t->size[comm] && o->rank[i] >= 0 && (size_t)o->rank[i] < t->ranks &&
         (size_t)t->slot_at[comm] + t->last[comm] < t->slots && (size_t)(t->member_at[comm] + place) < t->members;
}

/* Number the laps of what is compared; whether there are several. */
static int number_laps(const wr_rounds *t, wr_completed *o) {
  int several = 0;
  for (size_t i = 0; i < o->count; i++) {
    o->lap[i] = is_compared(t, o, i) ? 0 : LEFT_OUT;
    if (o->lap[i] == 0) t->lowest[o->comm[i]] = UINT32_MAX;
  }
  for (size_t i = 0; i < o->count; i++)
    if (o->lap[i] == 0 && o->counter[i] < t->lowest[o->comm[i]]) t->lowest[o->comm[i]] = o->counter[i];
  for (size_t i = 0; i < o->count; i++) {
    if (o->lap[i]) continue;
    uint32_t since = o->counter[i] - t->lowest[o->comm[i]], last = t->last[o->comm[i]];
    if (since <= last) continue;
    o->lap[i] = (uint32_t)(since / ((uint64_t)last + 1));
    several = 1;
  }
  return several;
}

static void keep(wr_lately *l, const wr_completed *o, size_t i) {
  l->comm[l->next] = (int32_t)o->comm[i];
  l->member[l->next] = (int32_t)o->place[i];
  l->counter[l->next] = o->counter[i];
  l->sign[l->next] = (uint32_t)(o->sign[i] >> 32);
  l->ordinal[l->next] = o->ordinal[i];
  if (++l->next == l->size) l->next = 0;
}

static void hold(const wr_rounds *t, wr_completed *o, size_t i) {
  int64_t comm = o->comm[i];
  uint32_t counter = o->counter[i], sign = (uint32_t)(o->sign[i] >> 32);
  size_t slot = (size_t)t->slot_at[comm] + (counter & t->last[comm]);
  uint64_t issued = (uint64_t)counter << 32 | sign;
  uint32_t known = (uint32_t)(t->first[slot] >> 32);
  int32_t since = (int32_t)(counter - known); /* counters go round */
  if (since < 0 && known) return;             /* its slot has a later round */
  int is_first = counter != known, differs = !is_first && t->first[slot] != issued;
  if (is_first) {
    t->first[slot] = issued;
    t->first_ordinal[slot] = o->ordinal[i];
    t->first_end_s[slot] = o->end_ns[i] ? (double)o->end_ns[i] / 1e9 + t->offset_s[o->rank[i]] : 0.0;
  }
  if (differs) o->differing[o->differings++] = (int64_t)i;
  if (is_first || differs) {
    uint32_t *seen = t->seen + (sign & (t->seen_size - 1));
    if (*seen != sign) o->unseen[o->unseens++] = (int64_t)i;
    *seen = sign;
  }
  uint32_t behind = o->ordinal[i] - t->first_ordinal[slot];
  if (behind == (uint32_t)t->behind[t->member_at[comm] + o->place[i]]) return;
  o->lap[i] = behind; /* its lap is not needed any more */
  o->moved[o->moves++] = (int64_t)i;
}

/* Members are no longer where they were before this lap. */
static void move(const wr_rounds *t, wr_completed *o) {
  for (size_t j = 0; j < o->moves; j++) {
    int64_t i = o->moved[j], since = t->behind_since[t->member_at[o->comm[i]] + o->place[i]];
    if ((int64_t)o->counter[i] - since >= (int64_t)t->steady) o->apart[o->aparts++] = o->comm[i];
  }
  for (size_t j = 0; j < o->moves; j++) {
    int64_t i = o->moved[j], member = t->member_at[o->comm[i]] + o->place[i];
    t->behind[member] = (int32_t)o->lap[i];
    t->behind_since[member] = o->counter[i];
  }
  o->moves = 0;
}

int wr_hold_rounds(const wr_rounds *t, wr_lately *l, wr_completed *o) {
  o->taken = o->unseens = o->differings = o->moves = o->aparts = 0;
  if (number_laps(t, o) && !o->order) return EDOM;
  for (size_t i = 0; i < o->count; i++) {
    if (o->lap[i] == LEFT_OUT) continue;
    o->taken++;
    if (l->size) keep(l, o, i);
  }
  uint32_t lap = 0;
  for (size_t j = 0; j < o->count; j++) {
    size_t i = o->order ? (size_t)o->order[j] : j;
    if (i >= o->count || o->lap[i] == LEFT_OUT) continue;
    if (o->lap[i] != lap) move(t, o);
    lap = o->lap[i];
    hold(t, o, i);
  }
  move(t, o);
  return 0;
}
