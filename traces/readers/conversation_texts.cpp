#include "traces/readers/conversation_texts.hpp"

#include <fmt/format.h>

#include <utility>

#include "traces/length.hpp"

namespace spillway::traces {

ConversationTexts::ConversationTexts(const std::string& tokenizer) : tokenizer_(open_tokenizer(tokenizer)) {}

void ConversationTexts::begin(std::uint64_t conversation) {
  conversation_ = conversation;
  history_ = answer_ = Tokens();
  asked_ = answers_ = accepted_ = false;
  turns_.clear();
  delivered_ = 0;
  here_.fill(0);
}

void ConversationTexts::add(Speaker speaker, std::string_view text) {
  const Tokens tokens = tokenizer_->count(text);
  if (speaker == Speaker::model && asked_) {
    answers_ = true;
    answer_ += tokens;
    return;
  }
  close_turn();
  history_ += tokens;
  if (speaker == Speaker::user) asked_ = true;
  if (speaker == Speaker::model) ++here_[kUnasked];
}

/// Ends the current answer, if there is one.
void ConversationTexts::close_turn() {
  if (!std::exchange(answers_, false)) return;
  if (answer_ == Tokens(0)) {
    ++here_[kEmptyAnswer];
    return;
  }
  if (history_ == Tokens(0)) {
    ++here_[kEmptyPrompt];
  } else {
    turns_.push_back({history_, answer_});
  }
  asked_ = false;
  history_ += std::exchange(answer_, Tokens());
}

std::string ConversationTexts::end() {
  const bool answered = answers_;  // perhaps with an empty text, which is counted by itself
  close_turn();
  if (asked_ && !answered) here_[kUnanswered] = 1;
  if (turns_.empty()) {
    here_.fill(0);  // counted once, as a whole
    here_[kNoTurn] = 1;
  }
  for (const Turn& turn : turns_) {
    for (const Tokens length : {turn.input, turn.output}) {
      if (length.count() <= kMaxTokens) continue;
      return fmt::format("{} of {} tokens: up to {} are possible", length == turn.input ? "a prompt" : "an answer",
                         length.count(), kMaxTokens);
    }
  }
  return {};
}

void ConversationTexts::accept() {
  accepted_ = true;
  for (std::size_t i = 0; i < kOddities; ++i) all_[i] += here_[i];
}

bool ConversationTexts::next(TraceRow& row) {
  if (!accepted_ || delivered_ == turns_.size()) return false;
  const Turn& turn = turns_[delivered_++];
  row.input = turn.input;
  row.output = turn.output;
  row.max_new_tokens = row.output;
  row.conversation = conversation_;
  row.turn = static_cast<std::int32_t>(delivered_);
  return true;
}

std::vector<std::string> ConversationTexts::warnings() const {
  constexpr std::array<const char*, kOddities> kTexts{
      "conversations left out because they have no question with an answer: {}",
      "answers without a question before them, added to the next prompt: {}",
      "last questions left out because they have no answer: {}",
      "empty answers left out, their questions added to the next prompt: {}",
      "turns left out because their prompt is empty: {}"};
  std::vector<std::string> warnings;
  if (std::string warning = tokenizer_->warning(); !warning.empty()) warnings.push_back(std::move(warning));
  for (std::size_t i = 0; i < kOddities; ++i) {
    if (all_[i] > 0) warnings.push_back(fmt::format(fmt::runtime(kTexts[i]), all_[i]));
  }
  return warnings;
}

}  // namespace spillway::traces
