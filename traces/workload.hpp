// The traffic of a run: from the `workload.*` keys to a stream of requests.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/api/parameter.hpp"
#include "sim/api/request_source.hpp"
#include "traces/length.hpp"
#include "traces/readers/trace_reader.hpp"

namespace spillway::traces {

/// Offered rate of a bundled workload, and of drawn arrivals on a file without times, unless `workload.rate` says
/// otherwise.
inline constexpr double kDefaultRate = 4.0;
/// Requests of a bundled workload unless `workload.requests` says otherwise.
inline constexpr std::int64_t kDefaultRequests = 2000;
/// The most requests in one run: serial numbers have 32 bits.
inline constexpr std::int64_t kMaxRequests = 4'000'000'000;
/// The most clients that `workload.clients` draws from. Keeps the memory for clients small.
inline constexpr std::int64_t kMaxClients = 1'000'000;
/// The burst of Aqua's evaluation (section 9.3): after some prompts at the stable rate, twice that rate for a minute.
inline constexpr double kDefaultBurstFactor = 2.0;
inline constexpr Duration kDefaultBurstTime{60'000'000'000};

/// Think times of conversations whose source states none: those of Pensieve (section 6.1). Real think times have a
/// longer tail.
inline constexpr const char* kDefaultThinkTime = "exponential(60s)";

/// Descriptors of the `workload.*` keys that open_workload reads.
[[nodiscard]] std::vector<Parameter> workload_parameters();

struct WorkloadFile {
  std::string path;
  std::string sha256;
};

struct Workload {
  std::string name;              // bundled name, or the file as the user named it
  std::string format;            // "quantile-table" for bundled ones, else a name of trace_formats()
  std::string source_text;       // where its requests come from, one sentence
  std::string sha256;            // of the bundled table or of the file
  std::string arrival;           // one of arrival_names(): what was chosen
  std::string arrival_details;   // "CV 2" of gamma, the burst of burst, else empty
  std::int64_t concurrency = 0;  // most requests in flight; 0: no limit
  std::optional<double> rate{};  // offered requests/s of that arrival (burst: outside the burst); empty when all
                                 // arrivals fall on one instant
  /// Coefficient of variation of the gaps between drawn arrivals; empty: the arrivals have no steady rate, or are not
  /// drawn.
  std::optional<double> variation{};
  std::int64_t requests = 0;          // in the stream, exactly
  bool prefix_ids = false;            // some request says which prompts share its prefix
  bool conversations = false;         // later turns wait for the answer to the turn before
  double mean_turns = 1.0;            // of a conversation, requests alone counting as one
  bool stationary = false;            // conversations are in balance at 0
  std::string think_time;             // as the user or the workload states it; empty: the trace's, or no conversations
  std::int64_t skipped_rows = 0;      // of the file, because they are not requests
  std::vector<WorkloadFile> files{};  // beside the trace, on which the requests depend: the tokenizer's
  bool random = false;                // false: every replication delivers the same requests
  std::vector<std::string> warnings;
  std::unique_ptr<RequestSource> stream;  // `requests` requests, arrivals in whole ns, the first at 0 unless a trace
                                          // whose clock is the run's starts later
};

/// Opens the traffic that the settings describe.
///
/// Reads every key of workload_parameters(), seed and memory.block_tokens. Rules for unset keys:
///  * A bundled name: kDefaultRequests requests, poisson, kDefaultRate. A value with '/' or '.' is a file.
///  * A file: all its rows, or the first `workload.requests`. With times: arrival `trace`, and `workload.rate` scales
///    them so that the whole file has that mean rate, (rows - 1) / (last - first). Without times `workload.rate` or
///    `workload.arrival` must be given; a rate alone means poisson.
///    Without input lengths `workload.input_tokens` must be given.
///  * poisson, gamma, constant and burst on a file keep its lengths and order and draw new arrivals, at
///  `workload.rate`,
///    else at the file's own mean rate, else at kDefaultRate. The first request arrives at 0.
///  * workload.cv is for gamma, which needs it; workload.burst_* are for burst, which needs burst_after.
///  * workload.input_tokens and output_tokens replace the lengths; with `uniform` a number is the middle. Prefix ids
///    beyond a shorter input are dropped.
///  * workload.concurrency N limits the requests in flight as ClosedLoop says, from workload.ramp on. Without a rate,
///  an
///    arrival process and times, all requests are due at 0.
///  * workload.max_new_tokens N is what every client asks for; outputs beyond N are cut to N, as an engine would.
///  * workload.clients N draws every request's client from 0 to N - 1, uniformly, or with the shares of
///    workload.client_shares; without them they are the file's, or all 0. A conversation has one client.
///  * Conversations (of chat workloads, and of files that name them) start as the arrival process says, at rate / mean
///    turns; those that live at 0 are said at LiveConversations, unless workload.start=empty or the starts have no mean
///    rate; how later turns come is said at WorkloadStream, how long their prompts are at TurnPlanner. A prompt and
///    its answer are at most workload.max_context long, by default `context_limit`. workload.conversations=false plays
///    every turn as a request alone, its prompt as the workload has it.
///  * workload.sessions=prefix gives a file its conversations as PrefixSessions says. They are a log, so turns keep the
///    times of the file, and drawn arrivals are refused.
///
/// A file is read once before the run: its rows are counted and checked, so a bad row stops the run before it starts.
///
/// Streams: workload.arrival and those of TurnPlanner. The same seed and replication draw the same lengths and, up to
/// scale, the same arrivals at any rate and with any clients.
///
/// Throws ConfigError with every problem of the settings and the file, or DataError when the file is all that is wrong.
/// A Problem's `where` is the key, or the file and row.
///
/// Cost of stream->next for a bundled workload: 70 ns on a 2.5 GHz Xeon, 145 ns with a lognormal length, some
/// 200 ns more with gamma arrivals; no allocation.
[[nodiscard]] Workload open_workload(const Settings& settings, std::int64_t replication,
                                     Tokens context_limit = Tokens(kMaxTokens));

/// The same requests as rows of a trace: see WorkloadRows. Throws as open_workload.
[[nodiscard]] std::unique_ptr<TraceReader> open_workload_rows(const Settings& settings, std::int64_t replication,
                                                              Tokens context_limit = Tokens(kMaxTokens));

}  // namespace spillway::traces
