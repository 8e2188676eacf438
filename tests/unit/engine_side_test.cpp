#include "hwmodels/models/engine_side.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "hwmodels/models/server_share.hpp"

namespace spillway::hwmodels {
namespace {

constexpr double kGiga = 1e9;

BytesPerSecond gb(double per_second) { return BytesPerSecond(per_second * kGiga); }

GpuProfile gpu() {
  GpuProfile gpu;
  gpu.h2d = {gb(50), 1e-6};
  gpu.d2h = {gb(40), 1e-6};
  gpu.h2d_bandwidth_duplex = gb(40);
  gpu.d2h_bandwidth_duplex = gb(25);
  return gpu;
}

ServerProfile server(std::optional<BytesPerSecond> h2d_aggregate, std::optional<BytesPerSecond> host_shared = {}) {
  ServerProfile server;
  server.h2d_aggregate = h2d_aggregate;
  server.host_shared_bandwidth = host_shared;
  return server;
}

EngineSide engine(const GpuProfile& gpu) { return {gpu, {}, 1}; }

std::pair<std::int64_t, std::int64_t> parts(const Slowdown& slowdown) { return {slowdown.num, slowdown.den}; }

Duration transfer(const GpuProfile& gpu, Stream direction, std::int64_t bytes) {
  return engine(gpu).copy(direction, 1, Bytes(bytes), CopyMechanism::many).transfer;
}

TEST(EngineSide, CopySharing_IsWhatEachDirectionReachesAloneOverDuplex) {
  GpuProfile profile = gpu();
  profile.copy_compute_slowdown = 1.06;
  const CopySharing sharing = engine(profile).copy_sharing();
  EXPECT_EQ(parts(sharing.h2d), std::pair(1'250'000L, 1'000'000L));
  EXPECT_EQ(parts(sharing.d2h), std::pair(1'600'000L, 1'000'000L));
  EXPECT_EQ(parts(sharing.compute), std::pair(1'060'000L, 1'000'000L));
  // 375 / 176.9 = 2.1198417, 297 / 187.3 = 1.5856914
  const CopySharing gh200 = engine(load_gpu("gh200-96gb")).copy_sharing();
  EXPECT_EQ(parts(gh200.h2d), std::pair(2'119'842L, 1'000'000L));
  EXPECT_EQ(parts(gh200.d2h), std::pair(1'585'691L, 1'000'000L));
  EXPECT_TRUE(gh200.compute.none());
}

TEST(EngineSide, CopySharing_WhenAProfileHasNoFigure_ThenNothingIsShared) {
  GpuProfile profile = gpu();
  profile.h2d_bandwidth_duplex.reset();
  EXPECT_TRUE(engine(profile).copy_sharing().h2d.none());
  EXPECT_FALSE(engine(profile).copy_sharing().d2h.none());
  profile.h2d.bandwidth = BytesPerSecond(0.0);  // null in the file
  const GpuProfile limited = with_server_limits(profile, server(gb(10)), 1);
  EXPECT_TRUE(engine(limited).copy_sharing().h2d.none());
  EXPECT_TRUE(engine(with_server_limits({}, {}, 1)).copy_sharing().h2d.none());
}

TEST(EngineSide, WithServerLimits_WhenThereAreNone_ThenChangesNothing) {
  const GpuProfile same = with_server_limits(gpu(), {}, 8);
  EXPECT_EQ(same.h2d.bandwidth, gb(50));
  EXPECT_EQ(same.d2h.bandwidth, gb(40));
  EXPECT_EQ(same.h2d_bandwidth_duplex, gb(40));
  EXPECT_EQ(same.d2h_bandwidth_duplex, gb(25));
}

TEST(EngineSide, WithServerLimits_SplitsTheAggregateAmongTheGpusThatCopy) {
  const ServerProfile hundred = server(gb(100));
  EXPECT_EQ(transfer(with_server_limits(gpu(), hundred, 1), Stream::h2d, 50'000), Duration(1'000));
  EXPECT_EQ(transfer(with_server_limits(gpu(), hundred, 2), Stream::h2d, 50'000), Duration(1'000));  // 50 each
  const GpuProfile four = with_server_limits(gpu(), hundred, 4);                                     // 25 each
  EXPECT_EQ(transfer(four, Stream::h2d, 50'000), Duration(2'000));
  EXPECT_EQ(transfer(four, Stream::d2h, 50'000), Duration(1'250));
  // 25 alone and beside the other direction; that one still falls from 40 to 25.
  EXPECT_TRUE(engine(four).copy_sharing().h2d.none());
  EXPECT_EQ(parts(engine(four).copy_sharing().d2h), std::pair(1'600'000L, 1'000'000L));
  // Eight H100: 278 / 8 = 34.75 GB/s each instead of 51.7; a lone one is not limited.
  const Hardware hgx = load_hardware("hgx-h100-8");
  EXPECT_EQ(transfer(with_server_limits(hgx.gpu, *hgx.server, 8), Stream::h2d, 34'750'000), Duration(1'000'000));
  EXPECT_EQ(transfer(with_server_limits(hgx.gpu, *hgx.server, 1), Stream::h2d, 51'688'147), Duration(1'000'000));
}

TEST(EngineSide, WithServerLimits_WhenTheHostIsShared_ThenBothDirectionsTogetherKeepToIt) {
  // 120 / 2 = 60 for both, less than the 40 + 25 of a GPU: 40 * 60 / 65 and 25 * 60 / 65.
  const GpuProfile two = with_server_limits(gpu(), server({}, gb(120)), 2);
  EXPECT_EQ(two.h2d.bandwidth, gb(50));
  EXPECT_EQ(two.d2h.bandwidth, gb(40));
  EXPECT_NEAR(two.h2d_bandwidth_duplex->value(), 36.923'077 * kGiga, 1e3);
  EXPECT_NEAR(two.d2h_bandwidth_duplex->value(), 23.076'923 * kGiga, 1e3);
  EXPECT_EQ(parts(engine(two).copy_sharing().h2d), std::pair(1'354'167L, 1'000'000L));  // 50 * 65 / 40 / 60
  EXPECT_EQ(parts(engine(two).copy_sharing().d2h), std::pair(1'733'333L, 1'000'000L));  // 40 * 65 / 25 / 60
  // 120 / 4 = 30: less than either direction alone, and 15 for each of 25 + 25 (h2d has 25 by its aggregate).
  const GpuProfile four = with_server_limits(gpu(), server(gb(100), gb(120)), 4);
  EXPECT_EQ(four.h2d.bandwidth, gb(25));
  EXPECT_EQ(four.d2h.bandwidth, gb(30));
  EXPECT_EQ(parts(engine(four).copy_sharing().h2d), std::pair(1'666'667L, 1'000'000L));
  EXPECT_EQ(parts(engine(four).copy_sharing().d2h), std::pair(2'000'000L, 1'000'000L));
  // Without an aggregate, what both share limits either.
  EXPECT_EQ(with_server_limits(gpu(), server({}, gb(120)), 4).h2d.bandwidth, gb(30));
}

// A layer of 1 ms in 3 layers, 0.5 ms before and after: 4 ms of GPU. The CPU takes 2 ms and 1 ms for each of n
// sequences: 3 ms are hidden, of 6 ms 2 are not.
TEST(EngineSide, HostTime_WhenOverlapped_ThenOnlyWhatIsLongerThanTheGpusIsSeen) {
  EngineProfile profile;
  profile.host_fixed_seconds = 2e-3;
  profile.host_per_sequence_seconds = 1e-3;
  const auto before = [&](bool overlapped, std::int64_t sequences) {
    profile.host_overlapped = overlapped;
    BatchShape shape;
    shape.decode_sequences = sequences;
    const TimeShares half{.compute = 0.5e-3};
    return EngineSide(gpu(), profile, 3).iteration(shape, 1.0, half, {.compute = 1e-3}, half).before;
  };
  EXPECT_EQ(before(true, 1), Duration(500'000));
  EXPECT_EQ(before(true, 4), Duration(2'500'000));
  EXPECT_EQ(before(false, 1), Duration(3'500'000));
  EXPECT_EQ(before(false, 4), Duration(6'500'000));
}

TEST(EngineSide, WithServerLimits_WhenMechanismsAreFitted_ThenLimitsThemToo) {
  GpuProfile profile = gpu();
  for (const CopyMechanism mechanism : {CopyMechanism::many, CopyMechanism::peer}) {
    Fitted<CopyModel>& copy = profile.fitted.copies.emplace_back();
    copy.model.mechanism = mechanism;
    copy.model.launch_seconds = 1e-6;
    copy.model.bandwidth = 50e9;
    copy.model.small.points = {{1'000.0, 2e-6}};
  }
  const EngineSide limited = engine(with_server_limits(profile, server(gb(50)), 2));
  // Ten small copies: 2 us and 20 ns each, of which 40 ns are the 1,000 bytes at 25 GB/s.
  const CopyTime small = limited.copy(Stream::h2d, 10, Bytes(10'000), CopyMechanism::many);
  EXPECT_EQ(small.transfer, Duration(400));
  EXPECT_EQ(small.launch, Duration(19'800));
  const CopyTime large = limited.copy(Stream::h2d, 1, Bytes(50'000), CopyMechanism::many);
  EXPECT_EQ(large.transfer, Duration(2'000));
  EXPECT_EQ(large.launch, Duration(1'000));
  EXPECT_EQ(limited.copy(Stream::h2d, 1, Bytes(50'000), CopyMechanism::peer).transfer, Duration(1'000));
}

}  // namespace
}  // namespace spillway::hwmodels
