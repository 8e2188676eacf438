#include "traces/tokenizers/tokenizer.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "sim/core/error.hpp"
#include "sim/core/text.hpp"
#include "sim/core/utf8.hpp"
#include "sim/io/line_reader.hpp"
#include "traces/tokenizers/gpt2.hpp"
#include "traces/tokenizers/sentence_piece.hpp"

namespace spillway::traces {
namespace {

constexpr std::string_view kGpt2 = "gpt2:";
constexpr const char* kForms = "estimate, gpt2:FOLDER (with encoder.json and merges.txt) or FILE.model (SentencePiece)";

class Estimate final : public Tokenizer {
 public:
  Tokens count(std::string_view text) override {
    constexpr std::int64_t kPerToken = 4;
    return Tokens((code_points(repaired_utf8(text, repaired_)) + kPerToken - 1) / kPerToken);
  }
  void encode(std::string_view, std::vector<std::uint32_t>&) override {
    SPILLWAY_CHECK(has_ids(), "the estimate has no ids of tokens");
  }
  [[nodiscard]] bool has_ids() const override { return false; }
  [[nodiscard]] std::string warning() const override {
    return "token counts of the trace's text are estimated at 4 characters per token; for exact ones set "
           "workload.tokenizer to gpt2:FOLDER or FILE.model";
  }

 private:
  std::string repaired_;
};

/// The form that `spec` was probably meant to have; empty when there is none.
std::string nearest_form(const std::string& spec) {
  std::error_code ignored;
  if (std::filesystem::is_directory(spec, ignored)) return "gpt2:" + spec;
  const std::size_t colon = spec.find(':');
  const std::vector<std::string> words{"estimate", "gpt2"};
  const std::string near = nearest_name(std::string_view(spec).substr(0, colon), words);
  if (near == "estimate") return colon == std::string::npos ? near : std::string();
  if (near.empty()) return {};
  const std::string folder = colon == std::string::npos ? std::string() : spec.substr(colon + 1);
  return "gpt2:" + (folder.empty() ? "FOLDER" : folder);
}

[[noreturn]] void unknown(const std::string& spec) {
  const std::string near = nearest_form(spec);
  throw ConfigError(fmt::format("unknown tokenizer \"{}\"", excerpt(spec)), "workload.tokenizer",
                    near.empty() ? fmt::format("known forms: {}", kForms)
                                 : fmt::format("did you mean \"{}\"? known forms: {}", excerpt(near), kForms));
}

}  // namespace

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& spec) {
  if (spec == "estimate") return std::make_unique<Estimate>();
  if (spec.starts_with(kGpt2) && spec.size() > kGpt2.size()) return open_gpt2(spec.substr(kGpt2.size()));
  if (spec.ends_with(".model")) return open_sentence_piece(spec);
  unknown(spec);
}

}  // namespace spillway::traces
