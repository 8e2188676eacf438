// The table of the `workload.*` keys.
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "traces/arrivals.hpp"
#include "traces/generators/quantile_table.hpp"
#include "traces/readers/reader.hpp"
#include "traces/workload.hpp"

namespace spillway::traces {
namespace {

Parameter key(std::string name, ParameterType type, std::string unit, std::string default_value, std::string doc,
              std::string source) {
  return {.name = std::move(name),
          .type = type,
          .unit = std::move(unit),
          .default_value = std::move(default_value),
          .doc = std::move(doc),
          .source = std::move(source)};
}

constexpr const char* kLengthSource = "Spillway: by default no length is replaced";

std::string length_doc(std::string_view side) {
  return fmt::format(
      "Replaces the {} lengths: a number (512; for the workload uniform this is the middle), "
      "uniform(MIDDLE,SPREAD), e.g. uniform(512,0.1), or lognormal(MEAN,CV); default: the workload's",
      side);
}

Parameter number(std::string name, ParameterType type, std::string unit, double minimum, double maximum,
                 std::string doc, std::string source) {
  Parameter parameter = key(std::move(name), type, std::move(unit), "", std::move(doc), std::move(source));
  parameter.minimum = minimum;
  parameter.maximum = maximum;
  return parameter;
}

void add_arrival(std::vector<Parameter>& table) {
  Parameter arrival = key(
      "workload.arrival", ParameterType::choice, "-", "",
      "Arrival process. poisson, gamma (with workload.cv), constant and burst (with workload.burst_*) draw arrivals "
      "at workload.rate; trace replays the file's times; all-at-once starts every request at 0. Default: trace for "
      "a file with times, else poisson",
      "Serving benchmarks draw Poisson arrivals (vLLM benchmarks/serve, burstiness 1)");
  arrival.choices = arrival_names();
  table.push_back(std::move(arrival));

  table.push_back(
      number("workload.cv", ParameterType::real, "-", 0.01, 100.0,
             "gamma: coefficient of variation of the gaps between arrivals (standard deviation over mean); 1 "
             "is poisson. Required with gamma, refused with other arrivals",
             "vLLM benchmarks/serve, whose burstiness is 1 / cv^2; real services have 1.1 to 13"));
  table.push_back(
      number("workload.burst_after", ParameterType::integer, "prompts", 1.0, static_cast<double>(kMaxRequests),
             "burst: number of the prompt whose arrival starts the burst, from 1. In conversations only first turns "
             "count. Required with burst, refused with other arrivals",
             "Aqua's burst (section 9.3) begins after 25 prompts at the stable rate"));
  Parameter factor = number(
      "workload.burst_factor", ParameterType::real, "-", 0.0, 1000.0,
      fmt::format(
          "burst: the rate during the burst is this factor x workload.rate; default: {}. Below 1 the burst is a lull",
          kDefaultBurstFactor),
      "Aqua's burst (section 9.3) doubles the rate");
  factor.above_minimum = true;
  table.push_back(std::move(factor));
  Parameter time = number("workload.burst_time", ParameterType::duration, "ns", 0.0, 1e17,
                          "burst: length of the burst, after which the rate is workload.rate again; default: 60s",
                          "Aqua's burst (section 9.3) lasts 60 s");
  time.above_minimum = true;
  table.push_back(std::move(time));
}

void add_concurrency(std::vector<Parameter>& table) {
  table.push_back(number("workload.concurrency", ParameterType::integer, "requests", 1.0,
                         static_cast<double>(kMaxClients),
                         "Maximum number of requests in flight. Without workload.rate, workload.arrival and times in "
                         "the file, the loop is closed: the next request is sent when one ends. With any of them, a "
                         "request that is due waits at its client, and its TTFT counts from the send. A turn of a "
                         "conversation is in flight, its think time is not. Default: no limit",
                         "vLLM benchmarks/serve --max-concurrency, GuideLLM's and AIPerf's concurrency"));
  table.push_back(number("workload.ramp", ParameterType::duration, "ns", 0.0, 1e17,
                         "workload.concurrency: time over which its first requests are sent, evenly; default: 0s",
                         "vLLM benchmarks/serve sends them at once; AIPerf has a ramp of the concurrency"));
}

void add_conversations(std::vector<Parameter>& table) {
  table.push_back(
      key("workload.conversations", ParameterType::boolean, "-", "true",
          "Play conversations: a turn arrives only after the answer to the turn before, and its prompt repeats the "
          "conversation so far. false: every turn is a request alone",
          "Spillway: true, as clients read an answer before they send the next turn"));
  Parameter sessions = key(
      "workload.sessions", ParameterType::choice, "-", "none",
      "Conversations of a trace file that names none but has times and prefix ids (hash_ids of mooncake-jsonl). "
      "prefix: a request continues the latest earlier request if its ids begin with the ids of that request's whole "
      "prompt blocks and its prompt is longer. Each request is continued at most once. none: every request is alone",
      "Spillway: none, as ids also repeat where users ask several questions about one document");
  sessions.choices = {"none", "prefix"};
  table.push_back(std::move(sessions));
  Parameter start =
      key("workload.start", ParameterType::choice, "-", "",
          "Conversations in progress at time 0. stationary: as many as if conversations had always started at the "
          "rate, each between two turns. Requests then arrive at workload.rate from the beginning, caches are empty, "
          "and the run ends after workload.requests turns of any conversation. empty: no conversation; each is played "
          "from its first turn to its last. Default: stationary, or empty if conversations do not start at a mean rate "
          "(a file's times, all-at-once, a closed loop)",
          "Cox, Renewal Theory (1962), section 5.4; a run from empty offers little of its rate for minutes");
  start.choices = {"stationary", "empty"};
  table.push_back(std::move(start));
  table.push_back(
      key("workload.think_time", ParameterType::text, "-", "",
          fmt::format("Time from an answer to the next turn of the conversation: exponential(MEAN), a duration alone "
                      "(also exponential), lognormal(MEAN,CV), constant(TIME), or trace (the file's times). Default: "
                      "the workload's, else {}",
                      kDefaultThinkTime),
          "Pensieve (section 6.1): exponential with a mean of 60 s; real think times have a longer tail"));
  table.push_back(
      number("workload.max_context", ParameterType::integer, "tokens", 2.0, static_cast<double>(kMaxTokens),
             "Longest prompt and answer of a turn together. Clients cut the oldest part of a longer context, then the "
             "new text, and ask for shorter answers. Default: the longest request that can run; then only the history "
             "is cut",
             "Pensieve (section 6.1) caps conversations at 16,384 tokens"));
  table.push_back(
      number("workload.drop_history", ParameterType::real, "-", 0.0, 1.0,
             "Share of later turns before which the client drops the history, in addition to the drops of a trace; "
             "default: 0",
             "Spillway: 0; in real conversations a quarter of the later turns have a shorter prompt"));
}

}  // namespace

std::vector<Parameter> workload_parameters() {
  std::vector<Parameter> table;
  Parameter trace = key("workload.trace", ParameterType::text, "-", "azure-conv",
                        "Source of the requests: a bundled workload, or a trace file (a name with a / or a .)",
                        "Spillway: the published lengths of a production service (explain azure-conv)");
  trace.choices = bundled_names();
  table.push_back(std::move(trace));

  Parameter format = key("workload.format", ParameterType::choice, "-", "auto",
                         "Format of the trace file; auto detects it from the start of the file",
                         "Spillway: auto, as the formats differ in their first line or keys");
  format.choices = trace_format_choices();
  table.push_back(std::move(format));

  table.push_back(
      key("workload.columns", ParameterType::text, "-", "",
          "What the columns of a CSV file, or the keys of JSON lines, mean: target=source pairs, with /N or *N "
          "behind a source of numbers, e.g. input_tokens=prompt_tokens,output_tokens=gen,arrival_s=ts/1000; "
          "nested keys are joined by dots. Targets: input_tokens, output_tokens (both required), arrival_s, "
          "client, conversation, turn; and for validate first_token_s and end_s (stamps) or ttft_s and e2e_s "
          "(from the arrival). Default: the file has a known format",
          "Spillway: every tool names its columns in its own way"));
  table.push_back(key("workload.tokenizer", ParameterType::text, "-", "estimate",
                      "Tokenizer for trace files with texts: estimate (4 characters per token, with a warning), "
                      "gpt2:FOLDER (with encoder.json and merges.txt) or FILE.model (SentencePiece)",
                      "Spillway: the rule of thumb of 4 characters, as the program has no tokenizer of its own"));
  table.push_back(key("workload.skip_bad_rows", ParameterType::boolean, "-", "false",
                      "Skip invalid rows of the trace file and report how many; false: a bad row is an error. The flag "
                      "--skip-bad-rows sets this key",
                      "Spillway: false, as skipped rows change the load"));

  Parameter requests =
      key("workload.requests", ParameterType::integer, "requests", "",
          fmt::format("Requests to replay; default: {} from a bundled workload, all rows of a file", kDefaultRequests),
          "Spillway: 2000 put 20 requests beyond the p99");
  requests.minimum = 1.0;
  requests.maximum = static_cast<double>(kMaxRequests);
  table.push_back(std::move(requests));

  Parameter rate =
      key("workload.rate", ParameterType::real, "requests/s", "",
          fmt::format("Mean offered rate (burst: outside the burst). It scales the times of a file so that the whole "
                      "file has this rate. Default: {} for a bundled workload, the file's own times "
                      "otherwise",
                      kDefaultRate),
          "Spillway: a load that the default GPU serves with capacity to spare");
  rate.minimum = 0.0;
  rate.above_minimum = true;
  rate.maximum = 1e9;
  table.push_back(std::move(rate));

  add_arrival(table);
  add_concurrency(table);

  table.push_back(key("workload.input_tokens", ParameterType::text, "tokens", "", length_doc("input"), kLengthSource));
  table.push_back(
      key("workload.output_tokens", ParameterType::text, "tokens", "", length_doc("output"), kLengthSource));
  Parameter max_new = key("workload.max_new_tokens", ParameterType::text, "tokens", "actual",
                          "Output length that clients ask for: actual (the length that each request generates, or the "
                          "limit in the trace), or a number, which also cuts longer outputs",
                          "Serving benchmarks set max_tokens to the recorded length (vLLM benchmarks/serve)");
  table.push_back(std::move(max_new));

  Parameter clients = key("workload.clients", ParameterType::integer, "clients", "",
                          "Number of clients, between which fairness is measured; every request's client is drawn "
                          "uniformly. Default: the clients of the trace, else one. For requests in flight see "
                          "workload.concurrency",
                          "Spillway: to study fairness with workloads that name no clients");
  clients.minimum = 1.0;
  clients.maximum = static_cast<double>(kMaxClients);
  table.push_back(std::move(clients));
  table.push_back(key("workload.client_shares", ParameterType::text, "-", "",
                      "Shares of the requests that clients 0, 1, ... send, e.g. 70/20/10; default: equal shares",
                      "Spillway: to study unequal clients, as in VTC (section 5.2)"));
  add_conversations(table);
  return table;
}

}  // namespace spillway::traces
