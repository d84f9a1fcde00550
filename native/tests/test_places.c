/* Places of ranks: what is offered, told and used. */
#include "atomics.h"
#include "check.h"

TEST(places_are_offered_told_and_used) {
  wr_ring *ring = ring_new();
  wr_places offered = {.ranks = 8, .stages = 2, .stage_stride = 4, .replicas = 4, .replica_stride = 1, .bytes = 1 << 20};
  wr_places_offer(ring, &offered);
  CHECK(ring->places.ranks == 8 && ring->places.stage_stride == 4 && ring->places.bytes == 1 << 20);
  CHECK(wr_places_newest(ring) == 0);
  for (uint32_t version = 1; version < 5; version++) {
    ring->places.told[version % 2] = 8 - version;
    STORE_RELEASE(&ring->places.newest, version);
    CHECK(wr_places_newest(ring) == version && wr_places_of(ring, version) == 8 - version);
    wr_places_used(ring, version, 8 - version, 1200, version == 3);
    CHECK(ring->places.used == version && ring->places.place == 8 - version && ring->places.took_ms == 1200);
    CHECK(ring->places.failed == (version == 3 ? 3 : 0));
  }
}
