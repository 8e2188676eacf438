// spillway place: a cluster file, its faults, the placement and what it is worth.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/cli/command.hpp"

namespace spillway::test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

class Place : public CliTest {
 protected:
  Output place(const std::string& cluster, std::vector<std::string> flags = {}) {
    write_text(file("cluster.json"), cluster);
    flags.insert(flags.begin(), {"place", "cluster.json"});
    return spillway(flags);
  }
  static std::string cluster(const std::string& models, const std::string& hardware = "hgx-h100-8",
                             const std::string& servers = "2") {
    return R"({"hardware": ")" + hardware + R"(", "servers": )" + servers + R"(, "models": [)" + models + "]}";
  }
};

// Two servers, four models that take eight GPUs each way: with a GPU of 80 GB or more between surpluses, each server
// gets a producer and a consumer. 30 - 20 and 40 - 30 leave 10 on both; 30 - 30 and 40 - 20 would leave 20 on one.
TEST_F(Place, PrintsServersPairsAndObjective) {
  const std::string models =
      R"({"name": "sd", "lends": "30GB", "tensor_parallel": 4}, {"name": "kand", "lends": "40GB", "tensor_parallel": 4},
         {"name": "opt", "borrows": "20GB", "tensor_parallel": 4}, {"name": "cfs", "borrows": "30GB", "tensor_parallel": 4})";
  const Output run = place(cluster(models), {"--json"});
  ASSERT_EQ(run.code, 0) << run.err;
  const json result = json::parse(run.out);
  EXPECT_EQ(result["objective"]["value_bytes"], 10'000'000'000);
  EXPECT_EQ(result["objective"]["surplus_producers"], 0);
  EXPECT_EQ(result["objective"]["optimal"], true);
  EXPECT_EQ(result["models"][0]["servers"], result["models"][2]["servers"]);
  EXPECT_EQ(result["models"][1]["servers"], result["models"][3]["servers"]);
  EXPECT_NE(result["models"][0]["servers"], result["models"][1]["servers"]);
  EXPECT_EQ(result["pairs"], json::parse(R"([{"producer": 0, "consumer": 2}, {"producer": 1, "consumer": 3}])"));
  EXPECT_EQ(result["worth"][0]["left_out"], "no workload to simulate");
  const Output table = place(cluster(models));
  EXPECT_THAT(table.out, AllOf(HasSubstr("10 GB: 10 GB left to lend"), HasSubstr("no placement has a lower value"),
                               HasSubstr("sd, opt"), HasSubstr("no workload to simulate")));
  EXPECT_THAT(table.err, HasSubstr("placed in"));
}

TEST_F(Place, Copies_AreModelsOfTheirOwn) {
  const Output run =
      place(cluster(R"({"name": "sd", "copies": 3, "lends": "30GB"}, {"name": "opt", "copies": 4, "borrows": "20GB"})"),
            {"--json"});
  ASSERT_EQ(run.code, 0) << run.err;
  const json result = json::parse(run.out);
  EXPECT_EQ(result["models"].size(), 7U);
  EXPECT_EQ(result["pairs"].size(), 3U);
  EXPECT_EQ(result["unmatched"].size(), 1U);
  EXPECT_EQ(result["worth"][0]["lender"], nullptr);
  EXPECT_EQ(result["worth"][1]["copies"], 3);
}

TEST_F(Place, KeysBesideTheList_HoldForModelsThatLackThem) {
  const Output run = place(R"({"hardware": "hgx-h100-8", "tensor_parallel": 4, "models": [
      {"name": "own", "lends": "1GB", "tensor_parallel": 2}, {"name": "shared", "lends": "1GB"}]})",
                           {"--json"});
  ASSERT_EQ(run.code, 0) << run.err;
  const json result = json::parse(run.out);
  EXPECT_EQ(result["servers"], 1);
  EXPECT_EQ(result["models"][0]["tensor_parallel"], 2);
  EXPECT_EQ(result["models"][1]["tensor_parallel"], 4);
}

// The consumer is run twice with its own keys: over 30 GB of its lender, and over the host.
TEST_F(Place, SimulatesEachConsumerWithAndWithoutItsLender) {
  const std::string models =
      R"({"name": "sd", "lends": "60GB", "tensor_parallel": 2},
         {"name": "llm", "borrows": "30GB", "model": "llama-3.1-70b", "tensor_parallel": 2,
          "memory": {"gpu_kv": "1.45GB"}, "workload": {"trace": "sharegpt", "rate": 3, "requests": 60}})";
  const Output run = place(cluster(models, "hgx-h100-8", "1"), {"--json"});
  ASSERT_EQ(run.code, 0) << run.err;
  const json worth = json::parse(run.out)["worth"][0];
  EXPECT_EQ(worth["lender"], "sd");
  const auto metric = [&](const char* policy, const char* name) {
    const std::vector<std::string> keys{"run",
                                        "hardware=hgx-h100-8",
                                        "model=llama-3.1-70b",
                                        "tensor_parallel=2",
                                        "memory.gpu_kv=1.45GB",
                                        "workload.trace=sharegpt",
                                        "workload.rate=3",
                                        "workload.requests=60",
                                        policy,
                                        "--json"};
    std::vector<std::string> all = keys;
    if (std::string(policy) == "policy=aqua") all.emplace_back("memory.peer=30GB");
    return json::parse(spillway(all).out)["metrics"][name]["value"].get<double>();
  };
  for (const char* const name : {"p99_ttft_ms", "mean_tpot_ms", "mean_e2e_ms"}) {
    EXPECT_DOUBLE_EQ(worth["lent"][name], metric("policy=aqua", name)) << name;
    EXPECT_DOUBLE_EQ(worth["host"][name], metric("policy=cfs", name)) << name;
  }
  EXPECT_LT(worth["lent"]["mean_e2e_ms"], worth["host"]["mean_e2e_ms"]);
  const Output only = place(cluster(models, "hgx-h100-8", "1"), {"--json", "--place-only"});
  EXPECT_FALSE(json::parse(only.out).contains("worth"));
}

// 4 contexts of 8192 tokens of OPT-30B, whose KV takes 2 * 48 layers * 7168 * 2 bytes = 1376256 bytes a token:
// 45.1 GB.
TEST_F(Place, Profiler_StoredContextsAreBorrowed) {
  const Output run =
      place(cluster(R"({"name": "docs", "model": "opt-30b", "prompts": 4, "context": 8192})"), {"--json"});
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(json::parse(run.out)["models"][0]["balance_bytes"], -4LL * 8192 * 1'376'256);
}

// An 8B model leaves most of its HBM free at any rate to 10 requests/s of short requests; so it lends.
TEST_F(Place, Profiler_MeasuresALanguageModelThatLends) {
  const Output run = place(cluster(R"({"name": "llama", "model": "llama-3.1-8b",
      "workload": {"trace": "uniform", "input_tokens": 100, "output_tokens": 20, "requests": 200}})"),
                           {"--json"});
  ASSERT_EQ(run.code, 0) << run.err;
  const json result = json::parse(run.out);
  EXPECT_EQ(result["profiles"][0]["stable_rate_requests_per_s"], 10.0);
  EXPECT_GT(result["models"][0]["balance_bytes"], 10'000'000'000);
  EXPECT_EQ(result["models"][0]["balance_bytes"], result["profiles"][0]["free_bytes"]);
}

// With 1 GB for KV nothing is left to lend; bursts page requests to the host.
TEST_F(Place, Profiler_MeasuresALanguageModelThatBorrows) {
  const Output run = place(cluster(R"({"name": "llama", "model": "llama-3.1-8b", "memory.gpu_kv": "1GB",
      "workload": {"trace": "uniform", "input_tokens": 1000, "output_tokens": 200, "requests": 200}})"),
                           {"--json", "--place-only"});
  ASSERT_EQ(run.code, 0) << run.err;
  const json result = json::parse(run.out);
  EXPECT_LT(result["profiles"][0]["free_bytes"], 1'000'000'000);
  EXPECT_LT(result["models"][0]["balance_bytes"], 0);
  EXPECT_THAT(result["profiles"][0]["terms"].get<std::string>(), HasSubstr("bursts swap"));
}

// Keys of the consumer's scheduler hold for its runs, and not for the rate search, whose policy has none of them.
TEST_F(Place, KeysOfTheFairScheduler_AreAConsumers) {
  const auto mean_e2e = [&](const std::string& slice) {
    const Output run = place(cluster(R"({"name": "sd", "lends": "30GB"},
      {"name": "llama", "model": "llama-3.1-8b", "memory.gpu_kv": "1GB", "policy.slice": )" +
                                     slice + R"(,
       "workload": {"trace": "uniform", "input_tokens": 1000, "output_tokens": 200, "rate": 10, "requests": 200}})"),
                             {"--json"});
    EXPECT_EQ(run.code, 0) << run.err;
    return json::parse(run.out)["worth"][0]["host"]["mean_e2e_ms"].get<double>();
  };
  EXPECT_LT(mean_e2e("50"), mean_e2e("3"));  // fewer requests page to the host
}

TEST_F(Place, Profiler_AModelThatMissesTheLimits_IsNamed) {
  const Output run = place(cluster(R"({"name": "slow", "model": "llama-3.1-70b", "tensor_parallel": 2,
      "workload": {"trace": "uniform", "input_tokens": 20000, "output_tokens": 2, "requests": 300}})"));
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err,
              AllOf(HasSubstr("slow misses the profiler's limits at 1 request/s"), HasSubstr("cluster.json:1")));
}

TEST_F(Place, BadInput_NamesTheConstraint) {
  struct Case {
    std::string cluster;
    std::string error;
    std::string where;
  };
  const std::vector<Case> cases{
      {cluster(R"({"name": "sd", "lends": "90GB"})"), "sd lends 90GB, and 1 GPU of", "cluster.json:1 (/models/0/name)"},
      {cluster(R"({"name": "big", "lends": "9GB", "tensor_parallel": 16})"),
       "no placement keeps a model on one server: big takes 16 GPUs, and a server has 8", "/models/0"},
      {cluster(R"({"name": "sd", "copies": 17, "lends": "30GB"})"),
       "no placement gives each GPU one model: the models take 17 GPUs, and 2 servers of 8 have 16", "servers"},
      {cluster(R"({"name": "odd", "copies": 3, "lends": "30GB", "tensor_parallel": 5})"),
       "no placement keeps the GPUs of each model on one server", "servers"},
      {cluster(R"({"name": "opt", "borrows": "20GB"})", "gcp-t4"), "opt borrows, and no GPU of gcp-t4 reaches",
       "/models/0"},
      {cluster(R"({"name": "opt", "borrows": "20GB"})", "h100-80gb-sxm"), "h100-80gb-sxm is a GPU alone", "/hardware"},
      {cluster(R"({"name": "opt", "borrows": "20GB"})", "hgx-h100"), "hgx-h100", "cluster.json:1"},
      {cluster(R"({"name": "opt", "lend": "20GB"})"), "unknown key \"lend\"", "did you mean \"lends\"?"},
      {cluster(R"({"name": "opt", "lends": "20"})"), "lends is 20, no size", "/models/0/lends"},
      {cluster(R"({"name": "opt", "lends": "20GB", "borrows": "1GB"})"), "opt lends and borrows", "/models/0"},
      {cluster(R"({"name": "opt"})"), "opt neither lends nor borrows, and has no workload", "/models/0"},
      {cluster(R"({"name": "opt", "model": "opt-30b", "prompts": 4})"), "prompts and context belong together",
       "/models/0"},
      {cluster(R"({"name": "opt", "lends": "1GB", "copies": 0})"), "copies is 0", "/models/0/copies"},
      {cluster(R"({"name": "opt", "lends": "1GB", "policy": "pie"})"), "policy has no place here", "/models/0/policy"},
      {cluster(R"({"name": "opt", "lends": "1GB", "policy.expansion": 2})"), "policy.expansion", "/models/0"},
      {cluster(R"({"name": "a", "lends": "1GB"}, {"name": "a", "lends": "2GB"})"), "two models are called a",
       "/models/1"},
      {cluster(R"({"name": "a", "lends": "1GB", "tensor_parallel": 0})"), "tensor_parallel",
       "/models/0/tensor_parallel"},
      {cluster(""), "models is an empty list", "/models"},
      {R"({"hardware": "hgx-h100-8"})", "models is missing", "cluster.json"},
      {R"({"hardwar": "hgx-h100-8", "models": []})", "unknown key \"hardwar\"", "did you mean \"hardware\"?"},
      {cluster(R"({"name": "a", "lends": "1GB"})", "hgx-h100-8", "0"), "servers is 0", "/servers"},
      {"{\n\"hardware\": \"hgx-h100-8\",\n\"models\": [}", "not valid JSON", "cluster.json:3"},
  };
  for (const Case& one : cases) {
    const Output run = place(one.cluster);
    EXPECT_EQ(run.code, 2) << one.cluster;
    EXPECT_THAT(run.err, AllOf(HasSubstr(one.error), HasSubstr(one.where))) << one.cluster;
    EXPECT_EQ(run.out, "");
  }
  EXPECT_THAT(spillway({"place", "none.json"}).err, HasSubstr("cannot read the configuration file none.json"));
}

// As published, consumers alone have no placement: no server lends what it borrows.
TEST_F(Place, Compat_IsTheCodeAsPublished) {
  const std::string models = R"({"name": "opt", "copies": 16, "borrows": "20GB"})";
  EXPECT_EQ(place(cluster(models)).code, 0);
  const Output run = place(cluster(models), {"--compat"});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("leave out --compat"));
  EXPECT_THAT(place(cluster(R"({"name": "sd", "lends": "30GB"})"), {"--compat"}).out, HasSubstr("published code does"));
}

}  // namespace
}  // namespace spillway::test
