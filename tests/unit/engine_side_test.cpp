#include "hwmodels/models/engine_side.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>

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

EngineSide engine(const GpuProfile& gpu) { return {gpu, {}, 1}; }

std::pair<std::int64_t, std::int64_t> parts(const Slowdown& slowdown) { return {slowdown.num, slowdown.den}; }

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
  profile.h2d_bandwidth_duplex = gb(40);
  EXPECT_TRUE(engine(profile).copy_sharing().h2d.none());
  EXPECT_TRUE(engine({}).copy_sharing().h2d.none());
}

// A kernel that gathers blocks reads and writes them once: 2 x 1 GB / 2,000 GB/s = 1 ms, besides the launch of 1 us;
// the link is busy for 1 GB / 40 GB/s. Between GPUs likewise, over 200 GB/s at a launch of 5 us. A fit of gathered
// copies knows of the gathering: 2 us + 1 GB / 25 GB/s.
TEST(EngineSide, GatheredCopies_PassThroughTheMemoryOnceMore) {
  GpuProfile profile = gpu();
  profile.memory_bandwidth = gb(2000);
  profile.peer = HostLink{gb(200), 5e-6};
  const Bytes gigabyte(1'000'000'000);
  const CopyTime out = engine(profile).copy(Stream::d2h, 1, gigabyte, CopyMechanism::gather);
  EXPECT_EQ(out.launch, Duration(1'001'000));
  EXPECT_EQ(out.transfer, Duration(25'000'000));
  const CopyTime lent = engine(profile).copy(Stream::peer_out, 1, gigabyte, CopyMechanism::gather);
  EXPECT_EQ(lent.launch, Duration(1'005'000));
  EXPECT_EQ(lent.transfer, Duration(5'000'000));
  Fitted<CopyModel> fitted;
  fitted.model.mechanism = CopyMechanism::gather;
  fitted.model.to_device = false;
  fitted.model.launch_seconds = 2e-6;
  fitted.model.bandwidth = 25e9;
  profile.fitted.copies.push_back(fitted);
  const CopyTime known = engine(profile).copy(Stream::d2h, 1, gigabyte, CopyMechanism::gather);
  EXPECT_EQ(known.launch + known.transfer, Duration(40'002'000));
  profile.memory_bandwidth = BytesPerSecond(0.0);  // null in the file
  EXPECT_EQ(engine(profile).copy(Stream::peer_in, 1, gigabyte, CopyMechanism::gather).launch, Duration(5'000));
}

// AQUA-19, the law of its section 7 for a buffer between two A100: 64 us + bytes / 250 GB/s, gathering included. 4 MB
// take 64 + 16 = 80 us, 50 GB/s; 64 MB take 64 + 256 = 320 us, 200 GB/s.
TEST(EngineSide, GatheredCopiesBetweenGpus_FollowAquasLaw) {
  GpuProfile profile = gpu();
  profile.memory_bandwidth = BytesPerSecond(0.0);  // no figure: the law has the gathering
  profile.peer = HostLink{gb(250), 64e-6};
  for (const auto& [bytes, transfer] : {std::pair{4'000'000, 16'000}, std::pair{64'000'000, 256'000}}) {
    for (const Stream way : {Stream::peer_in, Stream::peer_out}) {
      const CopyTime copy = engine(profile).copy(way, 1, Bytes(bytes), CopyMechanism::gather);
      EXPECT_EQ(copy.launch, Duration(64'000));
      EXPECT_EQ(copy.transfer, Duration(transfer));
    }
  }
}

// SMs reach 25 GB/s in, at 3 us a copy, and 20 while the other direction is busy. Of the way out the profile states
// nothing of SMs: the copy engine's 40 GB/s, 1 us, and 25 GB/s counts.
TEST(EngineSide, Copy_BySms_UsesTheirFiguresAndTheEnginesForTheRest) {
  GpuProfile profile = gpu();
  profile.kernel_copies = {.h2d = gb(25), .h2d_launch_seconds = 3e-6, .h2d_duplex = gb(20), .compute_slowdown = 1.06};
  const Bytes gigabyte(1'000'000'000);
  const auto time = [&](Stream stream, CopyMechanism mechanism) {
    const CopyTime copy = engine(profile).copy(stream, 1, gigabyte, mechanism);
    return std::pair(copy.launch, copy.transfer);
  };
  EXPECT_EQ(time(Stream::h2d, CopyMechanism::kernel), std::pair(Duration(3'000), Duration(40'000'000)));
  EXPECT_EQ(time(Stream::d2h, CopyMechanism::kernel), std::pair(Duration(1'000), Duration(25'000'000)));
  EXPECT_EQ(time(Stream::h2d, CopyMechanism::single), std::pair(Duration(1'000), Duration(20'000'000)));
  EXPECT_EQ(time(Stream::h2d, CopyMechanism::many), std::pair(Duration(1'000), Duration(20'000'000)));
  const CopySharing by_engine = engine(profile).copy_sharing();
  EXPECT_EQ(parts(by_engine.h2d), std::pair(1'250'000L, 1'000'000L));
  EXPECT_TRUE(by_engine.compute.none());
  profile.layer_copies = CopyMechanism::kernel;
  const CopySharing by_sms = engine(profile).copy_sharing();
  EXPECT_EQ(parts(by_sms.h2d), std::pair(1'250'000L, 1'000'000L));  // 25 / 20
  EXPECT_EQ(parts(by_sms.d2h), std::pair(1'600'000L, 1'000'000L));
  EXPECT_EQ(parts(by_sms.compute), std::pair(1'060'000L, 1'000'000L));
  // SMs alone reach less than copy engines beside the other direction: it does not slow them down.
  profile.kernel_copies = {.h2d = gb(30)};
  EXPECT_TRUE(engine(profile).copy_sharing().h2d.none());
  profile.kernel_copies = {};
  EXPECT_EQ(time(Stream::h2d, CopyMechanism::kernel), time(Stream::h2d, CopyMechanism::single));
}

// 1.23 GB on a GH200 120GB. Copy engines: 1.23e9 / 422.1e9 s in, 1.23e9 / 170.3e9 s out; together 340.9 and 149.7 GB/s.
// SMs: 410.0 and 380.1 GB/s, together 290.3 and 289.0.
TEST(EngineSide, Copy_OnAGh200_DependsOnMechanismDirectionAndMachine) {
  GpuProfile profile = load_gpu("gh200-120gb");
  const auto milliseconds = [&](Stream stream, CopyMechanism mechanism, bool both) {
    profile.layer_copies = mechanism;
    const EngineSide side = engine(profile);
    const Slowdown& slow = stream == Stream::h2d ? side.copy_sharing().h2d : side.copy_sharing().d2h;
    const double factor = both ? static_cast<double>(slow.num) / static_cast<double>(slow.den) : 1.0;
    return 1e3 * to_seconds(side.copy(stream, 1, Bytes(1'230'000'000), mechanism).transfer) * factor;
  };
  constexpr double kNear = 1e-5;  // slowdowns are to a millionth
  EXPECT_NEAR(milliseconds(Stream::h2d, CopyMechanism::single, false), 2.914001, kNear);
  EXPECT_NEAR(milliseconds(Stream::d2h, CopyMechanism::single, false), 7.222548, kNear);
  EXPECT_NEAR(milliseconds(Stream::h2d, CopyMechanism::single, true), 3.608096, kNear);
  EXPECT_NEAR(milliseconds(Stream::d2h, CopyMechanism::single, true), 8.216433, kNear);
  EXPECT_NEAR(milliseconds(Stream::h2d, CopyMechanism::kernel, false), 3.0, kNear);
  EXPECT_NEAR(milliseconds(Stream::d2h, CopyMechanism::kernel, false), 3.235991, kNear);
  EXPECT_NEAR(milliseconds(Stream::h2d, CopyMechanism::kernel, true), 4.236996, kNear);
  EXPECT_NEAR(milliseconds(Stream::d2h, CopyMechanism::kernel, true), 4.256055, kNear);
  // On a GH200 480GB: SMs 372.3 GB/s in, the copy engine's 297 out, each 204 together.
  profile = load_gpu("gh200-96gb");
  EXPECT_NEAR(milliseconds(Stream::h2d, CopyMechanism::kernel, false), 3.303787, kNear);
  EXPECT_NEAR(milliseconds(Stream::d2h, CopyMechanism::kernel, false), 4.141414, kNear);
  EXPECT_NEAR(milliseconds(Stream::h2d, CopyMechanism::kernel, true), 6.029412, kNear);
  EXPECT_NEAR(milliseconds(Stream::d2h, CopyMechanism::kernel, true), 6.029412, kNear);
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
    return EngineSide(gpu(), profile, 3).iteration(shape, 1.0, half, {.compute = 1e-3}, half, 0.0).before;
  };
  EXPECT_EQ(before(true, 1), Duration(500'000));
  EXPECT_EQ(before(true, 4), Duration(2'500'000));
  EXPECT_EQ(before(false, 1), Duration(3'500'000));
  EXPECT_EQ(before(false, 4), Duration(6'500'000));
}

// 0.5 ms of GPU before the layers, 4 ms in all. The connector takes 7 ms on the worker's thread, of which 1 ms is left
// when the engine is one iteration ahead; and 3 ms on the scheduler's, which is hidden then.
TEST(EngineSide, HostTime_OfAConnector_IsHiddenOnlyByAnEngineThatRunsAhead) {
  EngineProfile profile;
  const auto before = [&](bool overlapped, double scale) {
    profile.host_overlapped = overlapped;
    BatchShape shape;
    shape.decode_sequences = 1;
    shape.connector = {.scheduler = 3e-3, .worker = 7e-3, .worker_ahead = 1e-3};
    const TimeShares half{.compute = 0.5e-3};
    OpScales scales;
    scales.host = scale;
    return EngineSide(gpu(), profile, 3, scales).iteration(shape, 1.0, half, {.compute = 1e-3}, half, 0.0).before;
  };
  EXPECT_EQ(before(true, 1.0), Duration(1'500'000));
  EXPECT_EQ(before(false, 1.0), Duration(10'500'000));
  EXPECT_EQ(before(false, 0.5), Duration(5'500'000));
  EXPECT_EQ(before(true, 2.0), Duration(4'500'000));  // 6 - 4 ms of the scheduler, 2 ms of the worker
}

// a100-nvlink-2 states 253 GB/s and 11.6 us per copy between its GPUs: 253 MB take 1 ms. A kernel that gathers them
// reads and writes as many, at 2,039 GB/s: 248.161 us.
TEST(EngineSide, Copy_BetweenGpus_UsesTheServersLink) {
  const EngineSide server = engine(load_hardware("a100-nvlink-2").gpu);
  for (const Stream stream : {Stream::peer_in, Stream::peer_out}) {
    const CopyTime gathered = server.copy(stream, 1, Bytes(253'000'000), CopyMechanism::gather);
    EXPECT_EQ(gathered.launch, Duration(11'600 + 248'161));
    EXPECT_EQ(gathered.transfer, Duration(1'000'000));
    EXPECT_EQ(server.copy(stream, 3, Bytes(253'000'000), CopyMechanism::many).launch, Duration(34'800));
  }
  try {
    static_cast<void>(engine(gpu()).copy(Stream::peer_in, 1, Bytes(1), CopyMechanism::gather));
    FAIL() << "a GPU alone has no links to others";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("peer_bandwidth"), std::string::npos) << error.what();
  }
}

TEST(EngineSide, Copy_UsesTheFittedMechanism) {
  GpuProfile profile = gpu();
  Fitted<CopyModel>& copy = profile.fitted.copies.emplace_back();
  copy.model.mechanism = CopyMechanism::many;
  copy.model.launch_seconds = 1e-6;
  copy.model.bandwidth = 25e9;
  copy.model.small.points = {{1'000.0, 2.04e-6}};
  // Ten small copies: 2.04 us each, of which 40 ns are the 1,000 bytes at 25 GB/s.
  const CopyTime small = engine(profile).copy(Stream::h2d, 10, Bytes(10'000), CopyMechanism::many);
  EXPECT_EQ(small.transfer, Duration(400));
  EXPECT_EQ(small.launch, Duration(20'000));
  const CopyTime large = engine(profile).copy(Stream::h2d, 1, Bytes(50'000), CopyMechanism::many);
  EXPECT_EQ(large.transfer, Duration(2'000));
  EXPECT_EQ(large.launch, Duration(1'000));
}

// Two matrices of 1 GB together through a link of 10 GB/s and 5 us a copy, by a CPU that copies 20 GB/s: 50 ms before
// the DMA, which alone is on the link.
TEST(EngineSide, Relay_WhenNotFitted_ThenTheCpuCopiesFirst) {
  GpuProfile profile = gpu();
  profile.h2d = {BytesPerSecond(10e9), 5e-6};
  profile.host_copy = BytesPerSecond(20e9);
  const CopyTime time = engine(profile).copy(Stream::h2d, 2, Bytes(1'000'000'000), CopyMechanism::relay);
  EXPECT_EQ(time.launch, Duration(10'000 + 50'000'000));
  EXPECT_EQ(time.transfer, Duration(100'000'000));
  // A slower CPU makes the copy before the DMA longer, slower copies the DMA.
  const CopyTime slow = EngineSide(profile, {}, 1, {.copies = 3.0, .cpu = 2.0})
                            .copy(Stream::h2d, 2, Bytes(1'000'000'000), CopyMechanism::relay);
  EXPECT_EQ(slow.launch, Duration(30'000 + 100'000'000));
  EXPECT_EQ(slow.transfer, Duration(300'000'000));
  profile.host_copy.reset();
  try {
    static_cast<void>(engine(profile).copy(Stream::h2d, 1, Bytes(1), CopyMechanism::relay));
    FAIL() << "nobody knows how fast the CPU copies";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("how fast the host's CPU copies"), std::string::npos) << error.what();
  }
}

// Measured as a whole: 20 us + 1 GB at 8 GB/s = 125.02 ms, of which the DMA's 100 ms are on the link.
TEST(EngineSide, Relay_WhenFitted_ThenOnlyTheDmaIsOnTheLink) {
  GpuProfile profile = gpu();
  profile.h2d = {BytesPerSecond(10e9), 5e-6};
  Fitted<CopyModel>& copy = profile.fitted.copies.emplace_back();
  copy.model = {true, CopyMechanism::relay, 20e-6, 8e9, {}};
  const CopyTime time = engine(profile).copy(Stream::h2d, 1, Bytes(1'000'000'000), CopyMechanism::relay);
  EXPECT_EQ(time.launch + time.transfer, Duration(125'020'000));
  EXPECT_EQ(time.transfer, Duration(100'000'000));
}

// Launches of 1 us, and 1,000 bytes at 25 GB/s in 40 ns. Asked for again, a copy takes as long, and counts again; other
// numbers of copies or bytes have times of their own.
TEST(EngineSide, Copy_WhenAskedForAgain_ThenItIsTheSameAndCounts) {
  GpuProfile profile = gpu();
  profile.h2d = {BytesPerSecond(10e9), 5e-6};
  Fitted<CopyModel>& fitted = profile.fitted.copies.emplace_back();
  fitted.model.mechanism = CopyMechanism::many;
  fitted.model.launch_seconds = 1e-6;
  fitted.model.bandwidth = 25e9;
  fitted.record.ranges = {{"block_bytes", 100.0, 9'000.0}};
  const EngineSide side = engine(profile);
  const auto copy = [&](std::int64_t copies, std::int64_t bytes, CopyMechanism mechanism) {
    return side.copy(Stream::h2d, copies, Bytes(bytes), mechanism);
  };
  for (int again = 0; again < 3; ++again) {
    EXPECT_EQ(copy(2, 2'000, CopyMechanism::many).transfer, Duration(80));
    EXPECT_EQ(copy(2, 2'000, CopyMechanism::many).launch, Duration(2'000));
    EXPECT_EQ(copy(4, 2'000, CopyMechanism::many).launch, Duration(4'000));
    EXPECT_EQ(copy(4, 40'000, CopyMechanism::many).transfer, Duration(1'600));
    EXPECT_EQ(copy(2, 2'000, CopyMechanism::single).launch, Duration(10'000));
  }
  // Three times 2 + 2 + 4 + 4 copies by the fit, of which the last four are of 10,000 bytes.
  std::vector<RangeUse> uses;
  side.append_range_uses(uses);
  ASSERT_EQ(uses.size(), 1U);
  EXPECT_EQ(uses.front().calls, 36);
  EXPECT_EQ(uses.front().outside, 12);
}

}  // namespace
}  // namespace spillway::hwmodels
