// Byte-pair encoding of one piece of text.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::traces {

/// A vocabulary and its ranked merges, in the file formats of GPT-2.
///
/// The published algorithm merges all occurrences of the pair of the lowest rank, from the left, then looks again. Here
/// one occurrence is merged at a time: of the lowest rank, the leftmost. Both give the same tokens, because a pair with
/// a token in it that a merge made has a higher rank than that merge; the files are checked for this.
class BytePairs {
 public:
  /// Throws DataError if a file cannot be read or is invalid, with up to ten bad lines of the merges.
  BytePairs(const std::string& vocabulary_path, const std::string& merges_path);

  /// Appends the ids of the piece's tokens. O(n log n) in its bytes.
  void encode(std::string_view piece, std::vector<std::uint32_t>& ids);

 private:
  struct Merge {
    std::uint32_t rank = 0;
    std::uint32_t id = 0;  // of what it makes
  };
  /// The merges by their pair, in one array. Most lookups are of pairs that do not merge and should take one read of
  /// memory.
  class Table {
   public:
    /// Reserves memory for up to `count` merges.
    void reserve(std::size_t count);
    void insert(std::uint32_t left, std::uint32_t right, Merge merge);
    /// Rank UINT32_MAX: the two do not merge. O(1).
    [[nodiscard]] Merge find(std::uint32_t left, std::uint32_t right) const;

   private:
    struct Entry {
      std::uint32_t left = UINT32_MAX;
      std::uint32_t right = UINT32_MAX;
      Merge merge{UINT32_MAX, 0};  // of an empty place: what find() returns then
    };
    [[nodiscard]] std::size_t place_of(std::uint32_t left, std::uint32_t right) const;

    std::vector<Entry> entries_;  // a power of two, at most half of them taken; a taken place is passed over
  };
  /// A token of the piece, at the place of its first byte, and its neighbours; `merge` is that with the next one.
  struct Node {
    std::uint32_t id = 0;
    std::uint32_t previous = 0;
    std::uint32_t next = 0;
    Merge merge;
  };
  struct Candidate {
    std::uint32_t rank = 0;
    std::uint32_t place = 0;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : place > other.place;
    }
  };
  class Files;

  void start(std::string_view piece);
  void look(std::uint32_t place);
  void merge(std::uint32_t place);

  std::array<std::uint32_t, 256> byte_ids_{};
  Table merges_;
  std::vector<Node> nodes_;
  std::vector<Candidate> candidates_;  // a heap, the lowest on top; outdated ones are dropped when they come up
};

}  // namespace spillway::traces
