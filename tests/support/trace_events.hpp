// A checker of Chrome's trace event format, from its documentation ("Trace Event Format", the JSON object format).
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace spillway::test {

/// What is wrong with a trace; empty: nothing. Rules:
///  * an object with the list traceEvents; displayTimeUnit is ms or ns
///  * every event has a string name, a ph of one character, and integers pid and tid
///  * M (metadata) is process_name or thread_name with args.name, or a sort index with args.sort_index
///  * X (complete) has ts and dur >= 0, in microseconds; of one thread, events nest or follow each other
///  * b, n, e (nestable asynchronous) have ts, cat and id; of one (pid, cat, id), each e ends the last open b, which
///  has
///    its name, and time does not run back from b to e
///  * a process and a thread with events have names; a thread belongs to one process
inline std::vector<std::string> trace_problems(const nlohmann::json& trace) {
  using nlohmann::json;
  std::vector<std::string> problems;
  const auto wrong = [&](const json& event, const std::string& what) {
    problems.push_back(what + ": " + event.dump());
  };
  if (!trace.is_object() || !trace.contains("traceEvents") || !trace["traceEvents"].is_array()) {
    return {"no object with the list traceEvents"};
  }
  if (const std::string unit = trace.value("displayTimeUnit", "ms"); unit != "ms" && unit != "ns") {
    problems.push_back("displayTimeUnit " + unit);
  }
  std::set<std::int64_t> named_processes;
  std::map<std::int64_t, std::int64_t> named_threads;                                   // tid: pid
  std::map<std::int64_t, std::vector<std::pair<std::int64_t, std::int64_t>>> complete;  // tid: (begin, end), ns
  std::map<std::tuple<std::int64_t, std::string, std::string>, std::vector<std::pair<std::string, std::int64_t>>> open;
  const auto nanoseconds = [](const json& us) { return std::llround(us.get<double>() * 1e3); };
  for (const json& event : trace["traceEvents"]) {
    const bool whole = event.is_object() && event.contains("name") && event["name"].is_string() &&
                       event.contains("ph") && event["ph"].is_string() && event.contains("pid") &&
                       event["pid"].is_number_integer();
    if (!whole) {
      wrong(event, "no name, ph or pid");
      continue;
    }
    const std::string name = event["name"];
    const std::string ph = event["ph"];
    const std::int64_t pid = event["pid"];
    if (name != "process_name" && !(event.contains("tid") && event["tid"].is_number_integer())) {
      wrong(event, "no tid");
      continue;
    }
    if (ph == "M") {
      const json args = event.value("args", json::object());
      if (name == "process_name" && args.contains("name")) {
        named_processes.insert(pid);
      } else if (name == "thread_name" && args.contains("name")) {
        if (!named_threads.emplace(event["tid"], pid).second) wrong(event, "a thread has two names");
      } else if (name != "thread_sort_index" || !args.contains("sort_index")) {
        wrong(event, "unknown metadata");
      }
      continue;
    }
    if (!event.contains("ts") || !event["ts"].is_number() || event["ts"] < 0.0) {
      wrong(event, "no ts");
      continue;
    }
    if (!named_processes.contains(pid)) wrong(event, "its process has no name");
    const std::int64_t at = nanoseconds(event["ts"]);
    if (ph == "X") {
      if (!event.contains("dur") || !event["dur"].is_number() || event["dur"] < 0.0) {
        wrong(event, "no dur");
        continue;
      }
      const std::int64_t tid = event["tid"];
      if (!named_threads.contains(tid) || named_threads[tid] != pid) wrong(event, "its thread has no name");
      complete[tid].emplace_back(at, at + nanoseconds(event["dur"]));
    } else if (ph == "b" || ph == "n" || ph == "e") {
      if (!event.contains("cat") || !event.contains("id")) {
        wrong(event, "no cat or id");
        continue;
      }
      auto& stack = open[{pid, event["cat"], event["id"].dump()}];
      if (ph == "b") {
        stack.emplace_back(name, at);
      } else if (stack.empty()) {
        wrong(event, "nothing is open");
      } else if (ph == "e") {
        if (stack.back().first != name || stack.back().second > at) wrong(event, "it does not end what is open");
        stack.pop_back();
      }
    } else {
      wrong(event, "unknown ph");
    }
  }
  for (const auto& [key, stack] : open) {
    if (!stack.empty()) problems.push_back("never ends: " + stack.back().first);
  }
  for (auto& [tid, spans] : complete) {
    std::sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    std::vector<std::int64_t> ends;
    for (const auto& [begin, end] : spans) {
      while (!ends.empty() && ends.back() <= begin) ends.pop_back();
      if (!ends.empty() && end > ends.back()) {
        problems.push_back(fmt::format("thread {}: the event at {} ns leaves the one around it", tid, begin));
      }
      ends.push_back(end);
    }
  }
  return problems;
}

}  // namespace spillway::test
