#include "sim/io/whole_file.hpp"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "sim/study/result_store.hpp"

namespace spillway {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// Each test has an empty folder of its own.
class Files : public testing::Test {
 protected:
  Files() : folder_(fs::path(testing::TempDir()) / ("spillway_files_" + std::to_string(::getpid()))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~Files() override { fs::remove_all(folder_); }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  [[nodiscard]] std::string path(const std::string& name) const { return (folder_ / name).string(); }
  static void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

 private:
  fs::path folder_;
};

TEST_F(Files, RegularFilesAreReadWhole) {
  const std::string text = std::string(100'000, 'x') + std::string(1, '\0') + "end";
  write(path("a"), text);
  fs::create_symlink(path("a"), path("link"));
  EXPECT_EQ(read_whole_file(path("a")).bytes, text);
  EXPECT_EQ(read_whole_file(path("link")).bytes, text);
  write(path("empty"), "");
  EXPECT_TRUE(read_whole_file(path("empty")).ok());
  EXPECT_EQ(read_whole_file(path("a"), text.size()).bytes, text);
  EXPECT_THAT(read_whole_file(path("a"), text.size() - 1).fault, HasSubstr("it is larger than"));
}

TEST_F(Files, OthersAreRefusedWithTheReason) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  fs::create_symlink("loop", path("loop"));
  for (const auto& [name, fault] :
       std::vector<std::pair<std::string, std::string>>{{path("none"), "it does not exist"},
                                                        {path("."), "it is a folder"},
                                                        {path("pipe"), "it is not a regular file"},
                                                        {"/dev/zero", "it is not a regular file"},
                                                        {path("loop"), "Too many levels of symbolic links"},
                                                        {path(std::string(300, 'x')), "File name too long"},
                                                        {"/proc/self/mem", "Input/output error"}}) {
    const WholeFile file = read_whole_file(name);
    EXPECT_THAT(file.fault, HasSubstr(fault)) << name;
    EXPECT_TRUE(file.bytes.empty());
  }
}

TEST_F(Files, AStoreReturnsOnlyWhatItWrote) {
  const ResultStore store(path("out"));
  store.save("a", "{\"value\": 12}\n");
  EXPECT_EQ(store.load("a"), "{\"value\": 12}\n");
  EXPECT_FALSE(store.load("b"));
  write(store.point_path("a"), "{\"value\": 13}\n");
  EXPECT_FALSE(store.load("a"));
  store.save("a", "{\"value\": 12}\n");
  EXPECT_TRUE(store.load("a"));
  fs::remove(path("out/checksums/a.sha256"));
  EXPECT_FALSE(store.load("a")) << "without a checksum, the file may be incomplete";
}

}  // namespace
}  // namespace spillway
