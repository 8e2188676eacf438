#include "hwmodels/topology_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "hwmodels/json_messages.hpp"
#include "hwmodels/topology_file.hpp"

namespace spillway::hwmodels {
namespace {

using nlohmann::json;
using Pointer = json::json_pointer;

constexpr std::size_t kLongestName = 32;  // so that a drawing stays narrow
constexpr std::size_t kLongestPath = 8;
constexpr std::size_t kMostEntries = 1000;

constexpr std::array<std::string_view, 1> kSections{kTopologySection};
constexpr Kind kTopology{"", "topology", "topology", kSections, false};

class TopologyReader {
 public:
  explicit TopologyReader(FieldReader& in) : in_(in) {}

  Topology read(const json& section, std::int64_t gpus) {
    if (!section.is_object()) {
      in_.fail(kRoot, fmt::format("must be an object {{links, gpus}}, not {}", shown(section)));
      return {};
    }
    in_.reject_unknown(section, kRoot, {"links", "gpus"});
    const json& links = list(section, kRoot, "links");
    for (std::size_t i = 0; i < links.size(); ++i) read_link(links[i], kRoot / "links" / i);
    const json& stated = list(section, kRoot, "gpus");
    for (std::size_t i = 0; i < stated.size(); ++i) read_gpu(stated[i], kRoot / "gpus" / i);
    if (gpus > 0 && !stated.empty() && std::ssize(stated) != gpus) {
      in_.fail(
          kRoot / "gpus",
          fmt::format("states {} GPU{}, and the server has {}", stated.size(), stated.size() == 1 ? "" : "s", gpus),
          "state one entry for each GPU");
    }
    for (const TopologyLink& link : topology_.links) {
      if (!crossed_.contains(link.name)) {
        topology_.warnings.push_back(fmt::format("no GPU crosses link \"{}\" of the topology", link.name));
      }
    }
    return std::move(topology_);
  }

 private:
  /// A list that is not empty. Records a problem and returns an empty one when there is none.
  const json& list(const json& object, const Pointer& at, const char* key) {
    static const json kEmpty = json::array();
    const auto it = object.find(key);
    if (it == object.end()) return in_.fail(at / key, "missing"), kEmpty;
    if (it->is_array() && !it->empty() && it->size() <= kMostEntries) return *it;
    in_.fail(at / key, fmt::format("must be a list of 1 to {} entries, not {}", kMostEntries, shown(*it)));
    return kEmpty;
  }

  void read_link(const json& link, const Pointer& at) {
    if (!link.is_object()) return in_.fail(at, fmt::format("must be an object, not {}", shown(link)));
    in_.reject_unknown(link, at, {"names", "kind", "in", "out", "both"});
    std::vector<std::string> names;
    const json& stated = list(link, at, "names");
    for (std::size_t i = 0; i < stated.size(); ++i) read_name(stated[i], at / "names" / i, names);
    TopologyLink read{.name = {}, .kind = read_kind(link, at), .in = {}, .out = {}, .both = {}};
    const std::string called = names.empty()       ? fmt::format("link {}", at.back())
                               : names.size() == 1 ? names.front()
                                                   : names.front() + " to " + names.back();
    read.in = read_capacity(link, at, "in", called);
    read.out = read_capacity(link, at, "out", called);
    read.both = read_capacity(link, at, "both", called);
    for (std::string& name : names) {
      read.name = std::move(name);
      topology_.links.push_back(read);
    }
  }

  void read_name(const json& name, const Pointer& at, std::vector<std::string>& names) {
    if (!name.is_string() || name.get_ref<const std::string&>().empty() ||
        name.get_ref<const std::string&>().size() > kLongestName) {
      return in_.fail(at, fmt::format("must be a name of 1 to {} characters, not {}", kLongestName, shown(name)));
    }
    names.push_back(name);
    if (link_names_.insert(names.back()).second) return;
    in_.fail(at, fmt::format("there are two links \"{}\"", names.back()), "rename one of them");
    names.pop_back();
  }

  LinkKind read_kind(const json& link, const Pointer& at) {
    const auto it = link.find("kind");
    if (it == link.end()) return in_.fail(at / "kind", "missing"), LinkKind{};
    const std::string text = text_of(*it);
    const auto& names = link_kind_names();
    const auto found = std::ranges::find(names, text);
    if (found != names.end()) return static_cast<LinkKind>(found - names.begin());
    in_.fail(at / "kind", fmt::format("unknown kind \"{}\"", text), nearest_and_all(text, names));
    return {};
  }

  LinkCapacity read_capacity(const json& link, const Pointer& at, const char* key, const std::string& called) {
    const auto it = link.find(key);
    if (it == link.end()) return {};
    const auto read = in_.quantity(*it, at / key, called + " " + key, "bytes/s", kBandwidth);
    LinkCapacity capacity;
    if (read.value) capacity.rate = BytesPerSecond(*read.value);
    if (read.row) capacity.source_kind = read.row->source_kind;
    return capacity;
  }

  void read_gpu(const json& gpu, const Pointer& at) {
    GpuPaths& paths = topology_.gpus.emplace_back();
    if (!gpu.is_object()) {
      return in_.fail(at, fmt::format("must be an object {{host, peer, network}}, not {}", shown(gpu)));
    }
    in_.reject_unknown(gpu, at, {"host", "peer", "network"});
    paths.host = read_path(gpu, at, "host");
    if (!gpu.contains("host")) in_.fail(at / "host", "missing");
    paths.peer = read_path(gpu, at, "peer");
    paths.network = read_path(gpu, at, "network");
  }

  static std::string text_of(const json& value) { return value.is_string() ? value.get<std::string>() : shown(value); }

  std::vector<std::size_t> read_path(const json& gpu, const Pointer& at, const std::string& key) {
    const auto it = gpu.find(key);
    if (it == gpu.end()) return {};
    const bool may_be_empty = key != "host";
    if (!it->is_array() || it->size() > kLongestPath || (it->empty() && !may_be_empty)) {
      in_.fail(at / key, fmt::format("must be a list of {} to {} names of links, not {}", may_be_empty ? 0 : 1,
                                     kLongestPath, shown(*it)));
      return {};
    }
    std::vector<std::size_t> path;
    for (std::size_t i = 0; i < it->size(); ++i) read_crossing((*it)[i], at / key / i, path);
    return path;
  }

  void read_crossing(const json& name, const Pointer& at, std::vector<std::size_t>& path) {
    const auto& links = topology_.links;
    const std::string text = text_of(name);
    const auto found = std::ranges::find(links, text, &TopologyLink::name);
    if (found == links.end()) {
      return in_.fail(at, fmt::format("there is no link \"{}\"", text),
                      nearest_and_all(text, std::vector(link_names_.begin(), link_names_.end())));
    }
    const auto position = static_cast<std::size_t>(found - links.begin());
    if (std::ranges::count(path, position) > 0) {
      return in_.fail(at, fmt::format("crosses link \"{}\" twice", found->name), "name each link once");
    }
    path.push_back(position);
    crossed_.insert(found->name);
  }

  inline static const Pointer kRoot{"/topology"};
  FieldReader& in_;
  Topology topology_;
  std::set<std::string> link_names_;  // names of links
  std::set<std::string> crossed_;     // those that a GPU crosses
};

}  // namespace

Topology read_topology(FieldReader& in, std::int64_t gpus) {
  const json* const section = in.section(kTopologySection);
  if (section != nullptr) return TopologyReader(in).read(*section, gpus);
  in.fail(Pointer("/topology"), "missing");
  return {};
}

TopologyFile load_topology(const std::string& path, std::int64_t gpus) {
  FieldReader in(kTopology, path, read_file(path));
  Topology topology = read_topology(in, gpus);
  return {in.finish(), std::move(topology)};
}

}  // namespace spillway::hwmodels
