// From rows of lengths to the turns of conversations: what each prompt repeats, and what is new in it.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
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

/// Everything that a stream of requests needs, decided before its first one.
struct StreamPlan {
  std::int64_t requests = 0;
  ArrivalPlan arrival{};                      // of requests, or of the first turns of conversations
  SimTime origin{};                           // start of the run, as a file counts time
  std::optional<LengthDistribution> input{};  // in place of the rows': of what is new in a prompt
  std::optional<LengthDistribution> output{};
  std::int64_t max_new_tokens = 0;      // what every client asks for; 0: what the row says
  std::int64_t clients = 0;             // number of clients to draw from; 0: the rows' own
  std::vector<double> client_shares{};  // of those clients, adding up to 1; empty: as likely each
  Tokens block_tokens{16};
  bool sorted = true;  // false: times of the file go back here and there

  bool conversations = false;  // a turn waits for the answer to the turn before
  /// True: the rows of a conversation stand together and a later turn comes a think time after the answer before.
  /// False: rows come one by one, at the file's times or when the turn before is answered (and thought about).
  bool whole_conversations = true;
  double mean_turns = 1.0;         // of a conversation
  ThinkTime think{};               // of whole conversations
  Tokens max_context{kMaxTokens};  // longest prompt and answer together of a turn
  bool strict_context = false;     // clients also cut what is new in a prompt, and the answer that they ask for
  double drop_history = 0.0;       // share of the later turns before which the client drops what was said
};

/// One turn of a conversation, or a request alone, whose arrival is still open.
struct PlannedTurn {
  RequestSpec request;  // arrival: not before; prefix_ids: as the file states them
  Duration think{};     // from the end of the answer before
  /// Where content begins that no turn before has: from this block on, under this name. Empty: nothing is repeated.
  std::vector<std::pair<std::int64_t, std::uint64_t>> content;
};

/// What is known at once: a whole conversation, or one row of a log.
struct PlannedTurns {
  std::int64_t conversation = -1;  // its number, in order of start; -1: a request alone
  std::vector<PlannedTurn> turns;
};

/// Plans the rows of a table or a file in their order. What it draws depends on the rows alone, not on what becomes of
/// the requests, so every policy sees the same conversations.
///
/// A prompt is what it repeats of the turns before and what is new in it. It repeats all that was said and answered,
/// as the run plays it: where lengths are replaced, the context adds up to another length than in the file. A row
/// whose prompt is shorter than the one before has dropped the history; one that is not, but leaves no room for the
/// answer before, repeats the prompt alone. A prompt that is too long for max_context loses the oldest part of what
/// it repeats, and then begins with nothing that a prefix cache has seen. With strict_context it goes on with what is
/// new, and answers are shorter than the context, so that every turn fits.
///
/// Memory: one conversation; of a log, the last kKnown conversations to have a row. An older one that comes back counts
/// as another conversation.
class TurnPlanner {
 public:
  static constexpr std::size_t kKnown = 32'768;
  /// Turns that repeat a prompt but not its answer leave a seam in the content. Of a conversation with more seams than
  /// this the next turn counts as new content.
  static constexpr std::size_t kMostSeams = 64;

  /// Exactly one of `table` and `file` is there. Streams: workload.lengths, workload.input_tokens,
  /// workload.output_tokens, workload.clients, workload.turns, workload.think_time, workload.drop_history.
  TurnPlanner(const StreamPlan& plan, std::optional<QuantileTable> table, std::unique_ptr<TraceReader> file,
              std::int64_t seed, std::int64_t replication);
  /// The next turns, or false for ever after plan.requests of them. Throws DataError from the file.
  bool next(PlannedTurns& planned);
  /// Turns so far whose prompt or answer was cut to fit max_context.
  [[nodiscard]] std::int64_t shortened() const { return shortened_; }

 private:
  /// Where a conversation stands.
  struct Context {
    std::int64_t number = -1;
    std::int32_t turns = 0;
    std::uint32_t client = 0;
    std::uint64_t parts = 0;  // names of content given so far
    Tokens prompt{};          // of the last turn, as played
    Tokens answer{};
    Tokens prompt_said{};  // as the file has it
    Tokens answer_said{};
    std::vector<std::pair<std::int64_t, std::uint64_t>> content;
  };
  struct Known {
    Context context;
    std::list<std::uint64_t>::iterator use;
  };

  bool read_row();
  void plan_drawn_conversation(PlannedTurns& planned);
  void plan_whole_conversation(PlannedTurns& planned);
  void plan_row(Context& context, PlannedTurns& planned);
  void plan_turn(Context& context, Tokens repeated, Tokens fresh, PlannedTurns& planned);
  void fit_context(RequestSpec& request, Tokens& repeated, Tokens fresh);
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
  std::int64_t shortened_ = 0;
  std::int64_t conversations_ = 0;
  Context alone_;                                   // of a request, or of the conversation at hand
  std::unordered_map<std::uint64_t, Known> known_;  // conversations of a log
  std::list<std::uint64_t> order_;                  // the same, the one used longest ago first
};

}  // namespace spillway::traces
