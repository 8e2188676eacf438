#include "sim/cli/about/topology_drawing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/core/printable.hpp"
#include "sim/io/lines.hpp"

namespace spillway::cli {
namespace {

using hwmodels::GpuPaths;
using hwmodels::LinkCapacity;
using hwmodels::Topology;
using hwmodels::TopologyLink;
using Path = std::vector<std::size_t>;

/// A link, or a GPU below the links that lead to it.
struct Node {
  std::string label;
  std::string text;  // behind the label; may move to a line of its own
  std::vector<Node> below;
  std::size_t link = SIZE_MAX;
};

struct Limit {
  const LinkCapacity* capacity;
  std::string_view what;
};

/// "24 GB/s in (measured), 24 GB/s out (borrowed)"; a source that all have in common comes at the end.
std::string capacities(const TopologyLink& link) {
  const auto same = [](const LinkCapacity& a, const LinkCapacity& b) {
    return a.rate == b.rate && a.source_kind == b.source_kind;
  };
  std::vector<Limit> limits;
  if (same(link.in, link.out)) {
    limits.push_back({&link.in, "each way"});
  } else {
    limits.push_back({&link.in, "in"});
    limits.push_back({&link.out, "out"});
  }
  limits.push_back({&link.both, "both ways together"});
  std::erase_if(limits, [](const Limit& limit) { return !limit.capacity->rate; });
  if (limits.empty()) return "no limit known";
  const bool common = std::ranges::all_of(
      limits, [&](const Limit& limit) { return limit.capacity->source_kind == limits.front().capacity->source_kind; });
  std::string text;
  for (const Limit& limit : limits) {
    if (!text.empty()) text += ", ";
    text += fmt::format("{:.4g} GB/s {}", limit.capacity->rate->value() * 1e-9, limit.what);
    const std::string& source = limit.capacity->source_kind;
    if (!source.empty() && (!common || &limit == &limits.back())) text += fmt::format(" ({})", source);
  }
  return text;
}

std::string gpus_text(const std::vector<std::size_t>& gpus) {
  return fmt::format("GPU{} {}", gpus.size() == 1 ? "" : "s", fmt::join(gpus, ", "));
}

class Drawing {
 public:
  explicit Drawing(const Topology& topology) : topology_(topology) {}

  std::string draw(const std::string& host, std::int64_t servers) {
    Node root{.label = servers == 1 ? host : fmt::format("{}, in each of {} servers", host, servers),
              .text = {},
              .below = {}};
    for (std::size_t gpu = 0; gpu < topology_.gpus.size(); ++gpu) hang(root, topology_.gpus[gpu].host, gpu);
    for (std::size_t link = 0; link < topology_.links.size(); ++link) hang_network(root, link);
    line("", "", root);
    children(root, "");
    if (topology_.gpus.size() > 1) peers();
    return std::move(text_);
  }

 private:
  [[nodiscard]] Node node_of(std::size_t link) const {
    const TopologyLink& one = topology_.links[link];
    const std::string& kind = hwmodels::link_kind_name(one.kind);
    const std::string name = printable(one.name);
    return {.label = one.name.starts_with(kind) ? name : fmt::format("{} ({})", name, kind),
            .text = capacities(one),
            .below = {},
            .link = link};
  }

  /// Hangs a GPU below the links of its path, which starts at the GPU.
  void hang(Node& root, const Path& path, std::size_t gpu) const {
    Node* at = &root;
    for (const std::size_t link : std::vector(path.rbegin(), path.rend())) at = &child(*at, link);
    at->below.push_back({.label = fmt::format("GPU {}", gpu), .text = {}, .below = {}});
  }
  Node& child(Node& at, std::size_t link) const {
    const auto found = std::ranges::find(at.below, link, &Node::link);
    return found != at.below.end() ? *found : at.below.emplace_back(node_of(link));
  }

  /// A link that leads to other servers only hangs where the ways of its GPUs to the host meet.
  void hang_network(Node& root, std::size_t link) const {
    std::vector<std::size_t> users;
    for (std::size_t gpu = 0; gpu < topology_.gpus.size(); ++gpu) {
      const GpuPaths& paths = topology_.gpus[gpu];
      if (std::ranges::count(paths.host, link) + std::ranges::count(paths.peer, link) > 0) return;
      if (std::ranges::count(paths.network, link) > 0) users.push_back(gpu);
    }
    if (users.empty()) return;
    Node* at = &root;
    const Path& first = topology_.gpus[users.front()].host;
    for (std::size_t depth = 0; depth < first.size(); ++depth) {
      const std::size_t wanted = first[first.size() - 1 - depth];
      const bool common = std::ranges::all_of(users, [&](std::size_t gpu) {
        const Path& path = topology_.gpus[gpu].host;
        return depth < path.size() && path[path.size() - 1 - depth] == wanted;
      });
      if (!common) break;
      at = &child(*at, wanted);
    }
    Node node = node_of(link);
    node.label += " of " + gpus_text(users);
    at->below.push_back(std::move(node));
  }

  void peers() {
    const bool stated = std::ranges::any_of(topology_.gpus, [](const GpuPaths& paths) { return !paths.peer.empty(); });
    Node root{.label = stated ? "between GPUs" : "between GPUs: through the host", .text = {}, .below = {}};
    for (std::size_t gpu = 0; stated && gpu < topology_.gpus.size(); ++gpu) hang(root, topology_.gpus[gpu].peer, gpu);
    line("", "", root);
    children(root, "");
  }

  void children(const Node& node, const std::string& indent) {
    for (std::size_t i = 0; i < node.below.size(); ++i) {
      const bool last = i + 1 == node.below.size();
      Node one = node.below[i];
      const std::string deeper = indent + (last ? "   " : "|  ");
      // A link that leads to one GPU takes a line together with the GPU.
      if (one.below.size() == 1 && one.below.front().link == SIZE_MAX) {
        one.label += " of " + one.below.front().label;
        one.below.clear();
      }
      if (one.link != SIZE_MAX && !drawn_.insert(one.link).second) one.text = "as above";
      line(indent + (last ? "`- " : "|- "), deeper, one);
      children(one, deeper);
    }
  }

  /// The text goes to the next lines when the line would be too long: one part on each.
  void line(const std::string& front, const std::string& below, const Node& node) {
    const std::string margin = "    ";
    std::string whole = margin + front + node.label;
    if (!node.text.empty()) whole += ": " + node.text;
    if (whole.size() <= kColumns) {
      text_ += whole + "\n";
      return;
    }
    text_ += margin + front + node.label + ":\n";
    const std::string lead = margin + below + (node.below.empty() ? "   " : "|  ");
    for (std::size_t at = 0; at < node.text.size();) {
      const std::size_t end = std::min(node.text.find(", ", at), node.text.size());
      text_ += lead + node.text.substr(at, end - at) + (end < node.text.size() ? ",\n" : "\n");
      at = end + 2;
    }
  }

  const Topology& topology_;
  std::set<std::size_t> drawn_;
  std::string text_;
};

}  // namespace

std::string draw_topology(const Topology& topology, const std::string& host, std::int64_t servers) {
  return Drawing(topology).draw(host, servers);
}

}  // namespace spillway::cli
