#include "sim/study/replica_events.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "sim/core/printable.hpp"
#include "sim/core/text.hpp"
#include "sim/io/whole_file.hpp"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

class EventReader {
 public:
  EventReader(std::string name, std::int64_t replicas, std::vector<Problem>& problems)
      : name_(std::move(name)), replicas_(replicas), problems_(problems) {}

  std::vector<ReplicaEvent> read(const std::string& text) {
    Json list;
    try {
      list = Json::parse(text, nullptr, /*allow_exceptions=*/true, /*ignore_comments=*/true);
    } catch (const Json::parse_error& error) {
      const std::string_view what = error.what();
      const std::size_t at = what.find(": ");
      complain("not valid JSON: " + brief(at == what.npos ? what : what.substr(at + 2)), "", "correct the list");
      return {};
    }
    if (!list.is_array()) {
      complain("events are not a list", "", R"(write [{"at": "60s", "replica": 0, "event": "down"}])");
      return {};
    }
    std::vector<ReplicaEvent> events;
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (const auto event = one(list[i], fmt::format("/{}", i))) events.push_back(*event);
    }
    std::ranges::stable_sort(events, {}, &ReplicaEvent::at);
    check_order(events);
    return events;
  }

 private:
  std::optional<ReplicaEvent> one(const Json& event, const std::string& where) {
    constexpr const char* kForm = R"(write {"at": "60s", "replica": 0, "event": "down"})";
    if (!event.is_object()) {
      complain("an event is not an object", where, kForm);
      return std::nullopt;
    }
    const std::size_t before = problems_.size();
    for (const auto& [key, value] : event.items()) {
      if (key == "at" || key == "replica" || key == "event") continue;
      complain(fmt::format("unknown key \"{}\"", brief(key)), where, "an event has at, replica and event");
    }
    for (const char* const key : {"at", "replica", "event"}) {
      if (!event.contains(key)) complain(fmt::format("{} is missing", key), where, kForm);
    }
    if (problems_.size() > before) return std::nullopt;
    ReplicaEvent read;
    const Json& at = event["at"];
    const auto time = at.is_string() ? parse_duration(at.get<std::string>()) : std::nullopt;
    if (!time)
      complain(fmt::format("at is {}, no time", brief(at.dump())), where + "/at", R"(write for example "60s")");
    const Json& replica = event["replica"];
    const bool known =
        replica.is_number_integer() && replica.get<std::int64_t>() >= 0 && replica.get<std::int64_t>() < replicas_;
    if (!known) {
      complain(
          fmt::format("there is no replica {}", brief(replica.dump())), where + "/replica",
          replicas_ == 1 ? "the only replica is 0" : fmt::format("replicas are numbered from 0 to {}", replicas_ - 1));
    }
    const Json& what = event["event"];
    const bool down = what == "down";
    if (!down && what != "up") {
      complain(fmt::format("event is {}", brief(what.dump())), where + "/event", "it is down or up");
    }
    if (problems_.size() > before) return std::nullopt;
    return ReplicaEvent{SimTime{} + *time, static_cast<std::size_t>(replica.get<std::int64_t>()), !down};
  }

  /// A replica goes down and comes up in turn.
  void check_order(const std::vector<ReplicaEvent>& events) {
    std::map<std::size_t, bool> up;
    for (const ReplicaEvent& event : events) {
      const bool was_up = up.try_emplace(event.replica, true).first->second;
      if (was_up == event.up) {
        complain(fmt::format("replica {} is {} already at {}", event.replica, event.up ? "up" : "down",
                             format_duration(event.at - SimTime{})),
                 "", "let it go down and come up in turn; it is up at the start");
      }
      up[event.replica] = event.up;
    }
  }

  void complain(const std::string& what, const std::string& pointer, const std::string& fix) {
    problems_.push_back({what, pointer.empty() ? name_ : fmt::format("{} ({})", name_, pointer), fix});
  }

  const std::string name_;
  const std::int64_t replicas_;
  std::vector<Problem>& problems_;
};

}  // namespace

bool is_events_file(const std::string& list_or_file) {
  return !list_or_file.empty() && !trimmed(list_or_file).starts_with('[');
}

std::vector<ReplicaEvent> read_events(const std::string& list_or_file, std::int64_t replicas,
                                      std::vector<Problem>& problems) {
  if (!is_events_file(list_or_file)) return EventReader("events", replicas, problems).read(list_or_file);
  const WholeFile file = read_whole_file(list_or_file);
  if (!file.ok()) {
    problems.push_back({fmt::format("cannot read the file {}: {}", brief(list_or_file), file.fault), "events",
                        "check its name and its permissions"});
    return {};
  }
  return EventReader(brief(list_or_file), replicas, problems).read(file.bytes);
}

}  // namespace spillway
