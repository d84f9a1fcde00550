/* Shares of the work: what is offered, told and used. */
#include "atomics.h"
#include "check.h"

TEST(share_of_a_version_stays_readable_until_the_next_but_one) {
  wr_ring *ring = ring_new();
  wr_shares_offer(ring, 16, 2, 1, 4);
  CHECK(ring->shares.microbatches == 16 && ring->shares.multiple == 2);
  CHECK(ring->shares.replica == 1 && ring->shares.replicas == 4);
  CHECK(wr_shares_newest(ring) == 0);
  for (uint32_t version = 1; version < 5; version++) {
    ring->shares.told[version % 2] = (wr_share){10 * version, version};
    STORE_RELEASE(&ring->shares.newest, version);
    CHECK(wr_shares_newest(ring) == version);
    CHECK(wr_shares_of(ring, version).first == 10 * version && wr_shares_of(ring, version).count == version);
    if (version > 1) CHECK(wr_shares_of(ring, version - 1).count == version - 1);
    wr_shares_use(ring, version);
    CHECK(ring->shares.used == version);
  }
  wr_shares_offer(ring, 8, 1, 0, 2);
  CHECK(ring->shares.microbatches == 8 && ring->shares.used == 0 && wr_shares_newest(ring) == 0);
}
