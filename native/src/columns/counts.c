#include <string.h>

#include "whichrank/columns.h"

enum { EXPONENT_AT = 23, EXPONENT_OF_1 = 127 }; /* of a float: IEEE 754 */

/* The exponent of a square is twice that of its root, rounded down: no logarithm is as quick. */
static size_t bin_of(uint32_t wait_us, size_t bins) {
  float root = (float)wait_us + 1, square = root * root;
  uint32_t bits;
  memcpy(&bits, &square, sizeof bits);
  size_t bin = (bits >> EXPONENT_AT) - EXPONENT_OF_1;
  return bin < bins ? bin : bins - 1;
}

void wr_count_waits(size_t count, const int64_t *comm, const uint32_t *wait_us, size_t comms, size_t bins, float *counts,
                    double *total) {
  for (size_t i = 0; i < count; i++) {
    if (comm[i] < 0 || (size_t)comm[i] >= comms) continue;
    counts[(size_t)comm[i] * bins + bin_of(wait_us[i], bins)]++;
    total[comm[i]]++;
  }
}

void wr_count_kinds(size_t count, const int64_t *comm, const uint8_t *kind, size_t comms, size_t kinds, uint32_t *counts) {
  for (size_t i = 0; i < count; i++)
    if (comm[i] >= 0 && (size_t)comm[i] < comms && kind[i] < kinds) counts[(size_t)comm[i] * kinds + kind[i]]++;
}
