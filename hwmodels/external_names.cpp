#include "hwmodels/external_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "hwmodels/catalog.hpp"
#include "sim/core/text.hpp"

namespace spillway::hwmodels {
namespace {

using nlohmann::json;

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

/// A model's name, in small letters, without the prefixes and suffixes of tuned variants.
std::string base_name(std::string name) {
  if (name.starts_with("meta-")) name.erase(0, 5);
  constexpr std::array<std::string_view, 5> kSuffixes{"-hf", "-instruct", "-chat", "-base", "-it"};
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

/// The same without what tells how weights are stored: from the first word of a format on.
std::string model_of(std::string_view name) {
  std::string model = lower(name);
  for (const std::string_view format :
       {"-fp8", "-fp4", "-nvfp4", "-mxfp4", "-awq", "-gptq", "-int4", "-int8", "-gguf", "-bnb", "-quantized", "-mlx"}) {
    if (const auto at = model.find(format); at != std::string::npos && at > 0) model.resize(at);
  }
  return base_name(model);
}

/// An id of the hub.
struct HubId {
  std::string organisation;
  std::string name;

  [[nodiscard]] std::string text() const { return organisation + "/" + name; }
};

/// Empty for what is not of the form organisation/name, such as a path or a sentence.
std::optional<HubId> hub_id(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos || slash == 0 || slash + 1 == text.size()) return std::nullopt;
  const bool sentence = text.find(' ') != std::string_view::npos;
  if (sentence || text.find('/', slash + 1) != std::string_view::npos) return std::nullopt;
  if (text.ends_with(".json") || text.starts_with('.')) return std::nullopt;
  HubId id{std::string(text.substr(0, slash)), std::string(text.substr(slash + 1))};
  // The hub forwards the older name of the organisation.
  if (lower(id.organisation) == "neuralmagic") id.organisation = "RedHatAI";
  return id;
}

/// How an organisation stores the weights of the models whose names end so. Sources: the config.json and
/// hf_quant_config.json on the hub, from memory.
struct Quantiser {
  std::string_view organisation;
  std::string_view suffix;
  std::string_view config;  // quantization_config
  bool of_others = true;    // publishes the models of other organisations
  bool latent_too = true;   // also latent attention; else it stays in 16 bits
};
constexpr std::string_view kBlocks =
    R"({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]})";
constexpr std::string_view kModelOptFp8 = R"({"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]})";
constexpr std::string_view kModelOptFp4 =
    R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]})";
constexpr std::string_view kChannels =
    R"({"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"], "config_groups": {)"
    R"("group_0": {"targets": ["Linear"], "input_activations": {"num_bits": 8, "type": "float"},)"
    R"( "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": true}}}})";
constexpr std::string_view kInt8 =
    R"({"quant_method": "compressed-tensors", "format": "int-quantized", "ignore": ["lm_head"], "config_groups": {)"
    R"("group_0": {"targets": ["Linear"], "input_activations": {"num_bits": 8, "type": "int"},)"
    R"( "weights": {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": true}}}})";
constexpr std::string_view kInt4 =
    R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"], "config_groups": {)"
    R"("group_0": {"targets": ["Linear"], "input_activations": null,)"
    R"( "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": true}}}})";
constexpr auto kQuantisers = std::to_array<Quantiser>({
    {"Qwen", "-FP8", kBlocks, false},
    {"Qwen", "-AWQ", R"({"quant_method": "awq", "bits": 4, "group_size": 128})", false},
    {"Qwen", "-GPTQ-Int4", R"({"quant_method": "gptq", "bits": 4, "group_size": 128})", false},
    {"Qwen", "-GPTQ-Int8", R"({"quant_method": "gptq", "bits": 8, "group_size": 128})", false},
    {"nvidia", "-FP8", kModelOptFp8},
    {"nvidia", "-FP4", kModelOptFp4, true, false},
    {"nvidia", "-NVFP4", kModelOptFp4, true, false},
    {"RedHatAI", "-FP8", R"({"quant_method": "fp8", "activation_scheme": "static"})"},
    {"RedHatAI", "-FP8-dynamic", kChannels},
    {"RedHatAI", "-NVFP4", kModelOptFp4, true, false},
    {"RedHatAI", "-quantized.w4a16", kInt4},
    {"RedHatAI", "-quantized.w8a8", kInt8},
    {"hugging-quants", "-AWQ-INT4", R"({"quant_method": "awq", "bits": 4, "group_size": 128})"},
    {"hugging-quants", "-GPTQ-INT4", R"({"quant_method": "gptq", "bits": 4, "group_size": 128})"},
    {"TheBloke", "-AWQ", R"({"quant_method": "awq", "bits": 4, "group_size": 128})"},
    {"TheBloke", "-GPTQ", R"({"quant_method": "gptq", "bits": 4, "group_size": 128})"},
});

/// An id that a bundled model states.
struct KnownId {
  std::string llm;
  HubId id;
  json fields = json::object();
  bool latent = false;
};

std::vector<KnownId> known_ids() {
  std::vector<KnownId> known;
  for (const std::string& name : llm_names()) {
    const json document = json::parse(llm_file(name));
    const bool latent = document.value("config", json::object()).contains("kv_lora_rank");
    const auto add = [&](const std::string& text, json fields) {
      if (const auto id = hub_id(text)) known.push_back({name, *id, std::move(fields), latent});
    };
    add(document["stands_for"].get<std::string>(), json::object());
    for (json other : document.value("also", json::array())) {
      if (other.is_string()) other = {{"id", other}};
      const std::string id = other["id"].get<std::string>();
      other.erase("id");
      add(id, std::move(other));
    }
  }
  return known;
}

/// The known id with that name, whole before without suffixes of tuned variants. `any`: of whichever organisation.
const KnownId* find_known(const std::vector<KnownId>& known, const HubId& wanted, bool any) {
  const auto same = [&](const KnownId& one, const auto& name_of) {
    const bool here = any || lower(one.id.organisation) == lower(wanted.organisation);
    return here && name_of(lower(one.id.name)) == name_of(lower(wanted.name));
  };
  const auto find = [&](const auto& name_of) {
    return std::ranges::find_if(known, [&](const KnownId& one) { return same(one, name_of); });
  };
  auto it = find([](std::string name) { return name; });
  if (it == known.end()) it = find(base_name);
  return it == known.end() ? nullptr : &*it;
}

/// The known id with weights as the publisher stores them.
HubModel quantised(const KnownId& known, const Quantiser& quantiser) {
  json config = json::parse(quantiser.config);
  if (known.latent && !quantiser.latent_too) config["ignore"].push_back("model.layers.*.self_attn");
  json fields = known.fields;
  fields["quantization_config"] = std::move(config);
  return {known.llm, fields.dump()};
}

/// GPUs that people ask for and that no bundled profile describes.
struct MissingGpu {
  std::string_view name;  // in small letters, without blanks and signs; a word that is asked for starts with it
  std::string_view board;
  bool cuda = true;
};
constexpr auto kMissingGpus = std::to_array<MissingGpu>({{"rtxpro6000", "NVIDIA RTX PRO 6000"},
                                                         {"rtx6000ada", "NVIDIA RTX 6000 Ada"},
                                                         {"rtx5090", "NVIDIA RTX 5090"},
                                                         {"rtx3090", "NVIDIA RTX 3090"},
                                                         {"a6000", "NVIDIA RTX A6000"},
                                                         {"gb200", "NVIDIA GB200"},
                                                         {"gb300", "NVIDIA GB300"},
                                                         {"b300", "NVIDIA B300"},
                                                         {"h20", "NVIDIA H20"},
                                                         {"l40s", "NVIDIA L40S"},
                                                         {"l40", "NVIDIA L40"},
                                                         {"a40", "NVIDIA A40"},
                                                         {"v100", "NVIDIA V100"},
                                                         {"l4", "NVIDIA L4"},
                                                         {"mi210", "AMD Instinct MI210", false},
                                                         {"mi250", "AMD Instinct MI250", false},
                                                         {"mi300", "AMD Instinct MI300X", false},
                                                         {"mi325", "AMD Instinct MI325X", false},
                                                         {"mi350", "AMD Instinct MI350", false},
                                                         {"mi355", "AMD Instinct MI355X", false},
                                                         {"gaudi", "Intel Gaudi", false},
                                                         {"tpu", "Google TPU", false}});

}  // namespace

std::optional<std::string> gpu_of_device(std::string_view device) {
  // Names as the driver prints them: "NVIDIA GH200 480GB" (of host memory; the 144 GB board says "144G"), "NVIDIA
  // H200", "NVIDIA B200", "NVIDIA H100 80GB HBM3" against "NVIDIA H100 PCIe" and "NVIDIA H100 NVL", "NVIDIA
  // A100-SXM4-80GB", "NVIDIA A100 80GB PCIe", "NVIDIA A10", "NVIDIA A10G", "Tesla T4", "NVIDIA GeForce RTX 4090"
  // against "... RTX 4090 D".
  static const std::vector<Device> kDevices{{"gh200-96gb", {"gh200"}, {"144g", "144gb", "120gb"}},
                                            {"gh200-120gb", {"gh200", "120gb"}, {}},
                                            {"h200-141gb", {"h200"}, {"nvl"}},
                                            {"b200-180gb", {"b200"}, {}},
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
  while (repository.ends_with('/')) repository.remove_suffix(1);
  const std::string name = base_name(lower(repository.substr(repository.find_last_of('/') + 1)));
  for (const std::string& known : llm_names()) {
    if (name == lower(known)) return known;
  }
  return std::nullopt;
}

std::optional<HubModel> llm_of_hub_id(std::string_view id) {
  const std::optional<HubId> wanted = hub_id(id);
  if (!wanted) return std::nullopt;
  const std::vector<KnownId> known = known_ids();
  if (const KnownId* one = find_known(known, *wanted, false)) return HubModel{one->llm, one->fields.dump()};
  for (const Quantiser& quantiser : kQuantisers) {
    const bool theirs = lower(wanted->organisation) == lower(quantiser.organisation);
    if (!theirs || !lower(wanted->name).ends_with(lower(quantiser.suffix))) continue;
    HubId base = *wanted;
    base.name.resize(base.name.size() - quantiser.suffix.size());
    if (const KnownId* one = find_known(known, base, quantiser.of_others)) return quantised(*one, quantiser);
  }
  return std::nullopt;
}

std::string advice_on_hub_id(std::string_view id) {
  const std::optional<HubId> wanted = hub_id(id);
  if (!wanted) return {};
  std::string nearest;
  std::pair<bool, std::size_t> best{true, std::numeric_limits<std::size_t>::max()};
  // Another model is further away than any format and any publisher.
  const std::string model = model_of(wanted->name);
  const auto consider = [&](const std::string& one) {
    const bool other = model_of(hub_id(one)->name) != model;
    const std::pair distance{other, edit_distance(lower(id), lower(one))};
    if (distance < best) nearest = one;
    best = std::min(best, distance);
  };
  for (const KnownId& known : known_ids()) {
    consider(known.id.text());
    for (const Quantiser& quantiser : kQuantisers) {
      // Of other publishers only the one that was asked for: nobody knows whether the rest has published the model.
      const bool own = lower(known.id.organisation) == lower(quantiser.organisation);
      const bool asked = lower(wanted->organisation) == lower(quantiser.organisation);
      if (!own && !(asked && quantiser.of_others)) continue;
      consider(fmt::format("{}/{}{}", quantiser.organisation, known.id.name, quantiser.suffix));
    }
  }
  return fmt::format(
      "if this is a Hugging Face id: no bundled model has this id, the nearest one is {}; for any other model, give "
      "its config.json: model=FILE",
      nearest);
}

std::string advice_on_gpu(std::string_view name) {
  const std::vector<std::string> words = words_of(name);
  // Names of several words may be written as one. "h20" is not the start of "h200".
  const auto named = [&](const MissingGpu& gpu) {
    for (auto first = words.begin(); first != words.end(); ++first) {
      std::string joined;
      for (auto word = first; word != words.end(); ++word) {
        joined += *word;
        const std::string rest = joined.starts_with(gpu.name) ? joined.substr(gpu.name.size()) : "0";
        if (rest.empty() || std::isdigit(static_cast<unsigned char>(rest.front())) == 0) return true;
      }
    }
    return false;
  };
  const auto* it = std::ranges::find_if(kMissingGpus, named);
  if (it == kMissingGpus.end()) return {};
  return fmt::format(
      "no profile of the {} is bundled. {}its GEMMs, its prefill and decode attention, MoE kernels for experts, "
      "all-reduces for tensor_parallel, and copies to the host for offloading. calibrate fit makes a profile of the "
      "rows: docs/own-gpu.md",
      it->board,
      it->cuda ? "Measure with cuda_calibrate, or take from a public table: " : "Take from a public table: ");
}

}  // namespace spillway::hwmodels
