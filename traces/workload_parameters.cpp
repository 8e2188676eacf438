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

constexpr const char* kLengthSource =
    "Spillway: synthetic lengths in place of recorded ones; by default none are replaced";

std::string length_doc(std::string_view side) {
  return fmt::format(
      "Replaces the {} lengths: a number (512; of the workload uniform: the middle), "
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
  Parameter arrival =
      key("workload.arrival", ParameterType::choice, "-", "",
          "Arrival process: poisson, gamma (of workload.cv), constant and burst (of workload.burst_*) draw arrivals at "
          "workload.rate, trace takes the file's times, all-at-once starts every request at 0; default: trace for a "
          "file with times, else poisson",
          "Serving benchmarks draw Poisson arrivals (vLLM benchmarks/serve, burstiness 1)");
  arrival.choices = arrival_names();
  table.push_back(std::move(arrival));

  table.push_back(number("workload.cv", ParameterType::real, "-", 0.01, 100.0,
                         "gamma: standard deviation of the gaps between arrivals over their mean; 1 is poisson. Needed "
                         "with gamma, refused without",
                         "vLLM benchmarks/serve, whose burstiness is 1 / cv^2; services show from 1.1 to 13"));
  table.push_back(
      number("workload.burst_after", ParameterType::integer, "prompts", 1.0, static_cast<double>(kMaxRequests),
             "burst: the rate changes with the arrival of this prompt, counted from 1; of conversations only the "
             "first turns count. Needed with burst, "
             "refused without",
             "Aqua's burst (section 9.3) begins after 25 prompts at the stable rate"));
  Parameter factor = number(
      "workload.burst_factor", ParameterType::real, "-", 0.0, 1000.0,
      fmt::format("burst: rate in the burst over workload.rate; default: {}. Below 1: a lull", kDefaultBurstFactor),
      "Aqua's burst (section 9.3) doubles the rate");
  factor.above_minimum = true;
  table.push_back(std::move(factor));
  Parameter time = number("workload.burst_time", ParameterType::duration, "ns", 0.0, 1e17,
                          "burst: how long it lasts, then the rate is workload.rate again; default: 60s",
                          "Aqua's burst (section 9.3) lasts 60 s");
  time.above_minimum = true;
  table.push_back(std::move(time));
}

void add_conversations(std::vector<Parameter>& table) {
  table.push_back(
      key("workload.conversations", ParameterType::boolean, "-", "true",
          "Play conversations: a turn comes only after the answer to the turn before, and its prompt repeats "
          "what was said; false: every turn is a request alone",
          "Spillway: true, as no client sends a turn before it has read the answer"));
  table.push_back(
      key("workload.think_time", ParameterType::text, "-", "",
          fmt::format("Time from an answer to the next turn of the conversation: exponential(MEAN), a duration alone "
                      "(the same), lognormal(MEAN,CV), constant(TIME), or trace (as the file states); default: "
                      "the workload's, else {}",
                      kDefaultThinkTime),
          "Pensieve (section 6.1) draws it exponentially with a mean of 60 s; real ones have a longer tail"));
  table.push_back(
      number("workload.max_context", ParameterType::integer, "tokens", 2.0, static_cast<double>(kMaxTokens),
             "Longest prompt and answer together of a turn: clients leave out the oldest part of a longer context, "
             "then of what is new, and ask for shorter answers; default: the longest request that can run, to which "
             "only the history is cut",
             "Pensieve (section 6.1) caps conversations at 16,384 tokens"));
  table.push_back(
      number("workload.drop_history", ParameterType::real, "-", 0.0, 1.0,
             "Share of the later turns before which the client drops what was said so far; default: 0 beside "
             "what a trace shows",
             "Spillway: 0; in real conversations prompts shrink before a quarter of the later turns"));
}

}  // namespace

std::vector<Parameter> workload_parameters() {
  std::vector<Parameter> table;
  Parameter trace = key("workload.trace", ParameterType::text, "-", "azure-conv",
                        "Where requests come from: a bundled workload, or a trace file (its name has a / or a .)",
                        "Spillway: by default the published lengths of a production service (explain azure-conv)");
  trace.choices = bundled_names();
  table.push_back(std::move(trace));

  Parameter format = key("workload.format", ParameterType::choice, "-", "auto",
                         "Format of the trace file; auto tells it from the start of the file",
                         "Spillway: auto, as the formats differ in their first line or keys");
  format.choices = trace_format_choices();
  table.push_back(std::move(format));

  table.push_back(
      key("workload.tokenizer", ParameterType::text, "-", "estimate",
          "Tokenizer for trace files that hold texts: estimate (4 characters per token, with a warning), "
          "gpt2:FOLDER (with encoder.json and merges.txt) or FILE.model (SentencePiece)",
          "Spillway: by default the rule of thumb of 4 characters, as no tokenizer comes with the program"));
  table.push_back(
      key("workload.skip_bad_rows", ParameterType::boolean, "-", "false",
          "Leave rows of the trace file out that are no requests, count them and say so; false: a bad row is "
          "an error. The flag --skip-bad-rows sets it",
          "Spillway: false, as rows that are left out silently change the load"));

  Parameter requests =
      key("workload.requests", ParameterType::integer, "requests", "",
          fmt::format("Requests to replay; default: {} of a bundled workload, all rows of a file", kDefaultRequests),
          "Spillway: by default so many that 20 requests lie beyond the p99, or the whole trace");
  requests.minimum = 1.0;
  requests.maximum = static_cast<double>(kMaxRequests);
  table.push_back(std::move(requests));

  Parameter rate = key("workload.rate", ParameterType::real, "requests/s", "",
                       fmt::format("Mean offered rate (burst: outside the burst); default: {} for a bundled workload, "
                                   "the file's own times otherwise. "
                                   "The times of a file are scaled so that the whole file has this rate",
                                   kDefaultRate),
                       "Spillway: by default a load that the default GPU carries with room, or the trace's own");
  rate.minimum = 0.0;
  rate.above_minimum = true;
  rate.maximum = 1e9;
  table.push_back(std::move(rate));

  add_arrival(table);

  table.push_back(key("workload.input_tokens", ParameterType::text, "tokens", "", length_doc("input"), kLengthSource));
  table.push_back(
      key("workload.output_tokens", ParameterType::text, "tokens", "", length_doc("output"), kLengthSource));
  Parameter max_new = key("workload.max_new_tokens", ParameterType::text, "tokens", "actual",
                          "Output length that clients ask for: actual (what each request generates, or what the trace "
                          "states), or a number, at which longer outputs are cut",
                          "Serving benchmarks set max_tokens to the recorded length (vLLM benchmarks/serve)");
  table.push_back(std::move(max_new));

  Parameter clients = key("workload.clients", ParameterType::integer, "clients", "",
                          "Number of clients: every request's client is drawn from them, each as likely; default: the "
                          "clients of the trace, else one",
                          "Spillway: so that fairness can be tried on lengths whose source names no clients");
  clients.minimum = 1.0;
  clients.maximum = static_cast<double>(kMaxClients);
  table.push_back(std::move(clients));
  table.push_back(key("workload.client_shares", ParameterType::text, "-", "",
                      "Shares of the requests that clients 0, 1, ... send, e.g. 70/20/10; default: each as likely",
                      "Spillway: so that unequal clients can be tried, as in VTC (section 5.2)"));
  add_conversations(table);
  return table;
}

}  // namespace spillway::traces
