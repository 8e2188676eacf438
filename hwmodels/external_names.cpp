#include "hwmodels/external_names.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

#include "hwmodels/catalog.hpp"

namespace spillway::hwmodels {
namespace {

std::string lower(std::string_view text) {
  std::string small(text);
  std::transform(small.begin(), small.end(), small.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return small;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words{""};
  for (const char c : lower(text)) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      words.back() += c;
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

/// A GPU whose name contains all words of `has` and no word of `lacks`.
struct Device {
  const char* gpu;
  std::vector<std::string> has;
  std::vector<std::string> lacks;
};

/// The last part of a repository's name, without the prefixes and suffixes that publishers add.
std::string base_name(std::string_view repository) {
  while (repository.ends_with('/')) repository.remove_suffix(1);
  std::string name = lower(repository.substr(repository.find_last_of('/') + 1));
  if (name.starts_with("meta-")) name.erase(0, 5);
  constexpr std::array<std::string_view, 4> kSuffixes{"-hf", "-instruct", "-chat", "-base"};
  for (bool cut = true; cut;) {
    cut = false;
    for (const std::string_view suffix : kSuffixes) {
      if (!name.ends_with(suffix)) continue;
      name.resize(name.size() - suffix.size());
      cut = true;
    }
  }
  return name;
}

}  // namespace

std::optional<std::string> gpu_of_device(std::string_view device) {
  // Names as the driver prints them: "NVIDIA GH200 480GB" (of host memory; the 144 GB board says "144G"), "NVIDIA
  // H200", "NVIDIA H100 80GB HBM3" against "NVIDIA H100 PCIe" and "NVIDIA H100 NVL", "NVIDIA A100-SXM4-80GB", "NVIDIA
  // A100 80GB PCIe", "NVIDIA A10", "NVIDIA A10G", "Tesla T4", "NVIDIA GeForce RTX 4090" against "... RTX 4090 D".
  static const std::vector<Device> kDevices{{"gh200-96gb", {"gh200"}, {"144g", "144gb", "120gb"}},
                                            {"gh200-120gb", {"gh200", "120gb"}, {}},
                                            {"h200-141gb", {"h200"}, {"nvl"}},
                                            {"h100-80gb-sxm", {"h100"}, {"pcie", "nvl", "96gb", "64gb"}},
                                            {"a100-80gb-sxm", {"a100", "sxm4", "80gb"}, {}},
                                            {"a100-80gb-pcie", {"a100", "80gb", "pcie"}, {}},
                                            {"a10g-24gb", {"a10g"}, {}},
                                            {"a10-24gb", {"a10"}, {}},
                                            {"t4-16gb", {"t4"}, {}},
                                            {"rtx4090-24gb", {"rtx", "4090"}, {"d", "laptop"}}};
  const std::vector<std::string> words = words_of(device);
  const auto there = [&](const std::string& word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  const auto it = std::find_if(kDevices.begin(), kDevices.end(), [&](const Device& one) {
    return std::all_of(one.has.begin(), one.has.end(), there) &&
           std::none_of(one.lacks.begin(), one.lacks.end(), there);
  });
  if (it == kDevices.end()) return std::nullopt;
  return it->gpu;
}

std::optional<std::string> llm_of_repository(std::string_view repository) {
  const std::string name = base_name(repository);
  for (const std::string& known : llm_names()) {
    if (name == lower(known)) return known;
  }
  return std::nullopt;
}

}  // namespace spillway::hwmodels
