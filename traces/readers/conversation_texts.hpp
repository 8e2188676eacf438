// Conversations of texts, cut into the requests that led to them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "traces/readers/trace_reader.hpp"
#include "traces/tokenizers/tokenizer.hpp"

namespace spillway::traces {

/// Takes the messages of a conversation and delivers its turns as rows.
///
///  * A turn is a message of the user and the answer to it. Its input is the whole prompt: all messages before the
///    answer. Each message is cut into tokens by itself. No chat template is added, as it belongs to the served model;
///    templates add some 4 to 10 tokens per message.
///  * Messages of one side in a row are one message.
///  * A message of the system is part of the prompt of the turn that follows.
///  * An answer without a question, as at the start of a conversation whose beginning was cut off, is part of the next
///    prompt.
///  * Left out is what cannot be a request: questions without an answer at the end, answers of 0 tokens (the question
///    then waits for the next one), turns whose prompt has 0 tokens (their answer is history), and conversations
///    without a turn. All this is counted; see warnings.
///
/// Memory: two numbers per turn of one conversation.
class ConversationTexts {
 public:
  enum class Speaker : std::uint8_t { system, user, model };

  /// `tokenizer` as open_tokenizer takes and refuses it.
  explicit ConversationTexts(const std::string& tokenizer);

  /// Starts a conversation; drops the undelivered turns of the last one.
  void begin(std::uint64_t conversation);
  void add(Speaker speaker, std::string_view text);
  /// Ends the conversation. Returns a complaint if a prompt or an answer is longer than kMaxTokens, else nothing.
  [[nodiscard]] std::string end();
  /// Counts the conversation, which has ended, and lets `next` deliver its turns.
  void accept();
  /// Fills a cleared row; false when there are no more turns.
  bool next(TraceRow& row);

  /// The tokenizer's warning, and what was left out of accepted conversations.
  [[nodiscard]] std::vector<std::string> warnings() const;
  [[nodiscard]] std::vector<std::string> files() const { return tokenizer_->files(); }

 private:
  enum Oddity : std::size_t { kNoTurn, kUnasked, kUnanswered, kEmptyAnswer, kEmptyPrompt, kOddities };
  using Counts = std::array<std::int64_t, kOddities>;
  struct Turn {
    Tokens input{};
    Tokens output{};
  };
  void close_turn();

  std::unique_ptr<Tokenizer> tokenizer_;
  std::uint64_t conversation_ = 0;
  Tokens history_{};      // of all messages but the answer at hand
  Tokens answer_{};       // at hand
  bool asked_ = false;    // a message of the user waits for its answer
  bool answers_ = false;  // the message before was the model's, to a question
  std::vector<Turn> turns_;
  std::size_t delivered_ = 0;
  bool accepted_ = false;
  Counts here_{};  // of the conversation at hand
  Counts all_{};   // of those accepted
};

}  // namespace spillway::traces
