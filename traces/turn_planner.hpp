// Turns of conversations from rows of lengths: what each prompt repeats, and what is new.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/core/random.hpp"
#include "sim/core/request.hpp"
#include "traces/arrivals.hpp"
#include "traces/generators/quantile_table.hpp"
#include "traces/length.hpp"
#include "traces/readers/sorted_rows.hpp"
#include "traces/think_time.hpp"

namespace spillway::traces {

/// Everything that a stream of requests needs, decided before its first request.
struct StreamPlan {
  std::int64_t requests = 0;
  ArrivalPlan arrival{};                      // of requests, or of the first turns of conversations
  SimTime origin{};                           // start of the run on the clock of the file
  std::optional<LengthDistribution> input{};  // replaces the lengths of the rows: those of the new part of a prompt
  std::optional<LengthDistribution> output{};
  std::int64_t max_new_tokens = 0;      // limit that every client asks for; 0: the limit of the row
  std::int64_t clients = 0;             // number of clients to draw from; 0: the clients of the rows
  std::vector<double> client_shares{};  // of those clients, with sum 1; empty: equal shares
  Tokens block_tokens{16};
  bool sorted = true;  // false: times of the file may go back

  bool conversations = false;  // a turn waits for the answer to the turn before
  /// True: the rows of a conversation stand together, and a later turn arrives a think time after the answer before.
  /// False: rows arrive one by one, at the file's times, but not before the answer before and its think time.
  bool whole_conversations = true;
  double mean_turns = 1.0;  // of a conversation
  /// True: conversations are in balance at 0 as LiveConversations says, and `requests` are those that arrive first. So
  /// the last conversations are not played to their end.
  bool stationary = false;
  std::int64_t starts = 0;         // conversations and single requests of the file
  ThinkTime think{};               // of whole conversations
  Tokens max_context{kMaxTokens};  // longest prompt and answer of a turn together
  bool strict_context = false;     // clients also cut the new part of a prompt, and their answers
  double drop_history = 0.0;       // share of later turns before which the client drops the history
};

/// One turn of a conversation, or a single request, without its final arrival.
struct PlannedTurn {
  RequestSpec request;  // arrival: not before; prefix_ids: as the file states them
  Duration think{};     // from the end of the answer before
  /// Blocks from which on the content is new, each with the name of that content. Empty: nothing is repeated.
  std::vector<std::pair<std::int64_t, std::uint64_t>> content;
  bool shortened = false;  // the prompt or the answer was cut to fit max_context
};

/// Turns that are planned together: a whole conversation, or one row of a log.
struct PlannedTurns {
  std::int64_t conversation = -1;  // its number, in order of start; -1: a single request
  std::vector<PlannedTurn> turns;
};

/// Makes another conversation of the same turns, with this number and content of its own.
void rename(PlannedTurns& planned, std::int64_t number);

/// Plans the rows of a table or a file in their order. Draws depend only on the rows, not on how the requests are
/// served, so every policy sees the same conversations.
///
/// A prompt repeats the turns before and adds a new part. It repeats all prompts and answers as the run plays them:
/// if lengths are replaced, the context has another length than in the file. A row with a shorter prompt than the row
/// before has dropped the history. A longer prompt without space for the answer before repeats only the prompt before.
/// A prompt that is too long for max_context loses the oldest part of the history, so its start is in no prefix cache.
/// With strict_context the new part is cut next, and answers are shorter than the context, so that every turn fits.
///
/// Memory: one conversation; for a log, the last kKnown conversations that had a row. An older conversation that
/// returns counts as a new one.
class TurnPlanner {
 public:
  static constexpr std::size_t kKnown = 32'768;
  /// A turn that repeats a prompt without its answer leaves a seam in the content. After more seams than this, the next
  /// turn of the conversation counts as new content.
  static constexpr std::size_t kMostSeams = 64;

  /// Exactly one of `table` and `file` is given. Streams: workload.lengths, workload.input_tokens,
  /// workload.output_tokens, workload.clients, workload.turns, workload.think_time, workload.drop_history; `purpose`
  /// stands before these names.
  TurnPlanner(const StreamPlan& plan, std::optional<QuantileTable> table, std::unique_ptr<TraceReader> file,
              std::int64_t seed, std::int64_t replication, std::string_view purpose = {});
  /// The next turns, or false for ever after plan.requests of them. Throws DataError from the file.
  bool next(PlannedTurns& planned);
  /// The next conversation of the table, with so many turns instead of a drawn number.
  void draw_conversation(std::int64_t turns, PlannedTurns& planned);
  /// Conversations are numbered from here on. Call it before the first turn.
  void number_from(std::int64_t first) { conversations_ = first; }

 private:
  /// State of a conversation.
  struct Context {
    std::int64_t number = -1;
    std::int32_t turns = 0;
    std::uint32_t client = 0;
    std::uint64_t parts = 0;  // number of names of content so far
    Tokens prompt{};          // of the last turn, as played
    Tokens answer{};
    Tokens prompt_said{};  // as in the file
    Tokens answer_said{};
    std::vector<std::pair<std::int64_t, std::uint64_t>> content;
  };
  struct Known {
    Context context;
    std::list<std::uint64_t>::iterator use;
  };

  bool read_row();
  void plan_whole_conversation(PlannedTurns& planned);
  void plan_row(Context& context, PlannedTurns& planned);
  void plan_turn(Context& context, Tokens repeated, Tokens fresh, PlannedTurns& planned);
  void fit_context(PlannedTurn& turn, Tokens& repeated, Tokens fresh);
  void set_content(Context& context, Tokens repeated);
  void start(Context& context, bool conversation);
  Context& context_of(std::uint64_t conversation);
  std::uint32_t draw_client();

  StreamPlan plan_;
  std::optional<QuantileTable> table_;
  std::unique_ptr<TraceReader> file_;
  std::optional<SortedRows> sorted_;
  TraceRow row_;
  bool row_ready_ = false;
  RandomStream lengths_;
  RandomStream inputs_;
  RandomStream outputs_;
  RandomStream clients_;
  RandomStream turns_;
  RandomStream thinks_;
  RandomStream drops_;
  SimTime time_{};  // of the last row that states one
  std::int64_t planned_ = 0;
  std::int64_t conversations_ = 0;
  Context alone_;                                   // of a single request, or of the current conversation
  std::unordered_map<std::uint64_t, Known> known_;  // conversations of a log
  std::list<std::uint64_t> order_;                  // their numbers, least recently used first
};

}  // namespace spillway::traces
