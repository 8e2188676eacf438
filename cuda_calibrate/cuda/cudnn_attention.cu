#include <fmt/format.h>

#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cuda_calibrate/cuda/attention_reference.hpp"
#include "cuda_calibrate/cuda/cudnn_attention.hpp"
#include "cuda_calibrate/cuda/cudnn_library.hpp"
#include "cuda_calibrate/cuda/cudnn_plan.hpp"
#include "cuda_calibrate/cuda/numbers.hpp"

namespace spillway::calibrate::gpu {
namespace {

/// cuDNN cannot do the work; Spillway's kernel does it instead.
class Refusal : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A cuDNN handle on the current GPU.
class Session {
 public:
  explicit Session(const CudnnLibrary& library) : library_(library) { check(library.create(&handle_), "cudnnCreate"); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() {
    if (handle_ != nullptr) (void)library_.destroy(handle_);
  }
  [[nodiscard]] const CudnnLibrary& library() const { return library_; }
  [[nodiscard]] cudnnHandle_t handle() const { return handle_; }

  void check(cudnnStatus_t status, const std::string& what) const {
    if (status == CUDNN_STATUS_SUCCESS) return;
    std::array<char, 512> message{};
    library_.last_error_string(message.data(), message.size());
    message.back() = '\0';
    throw Refusal(fmt::format("{}: {}{}{}", what, library_.error_string(status), message.front() == '\0' ? "" : ": ",
                              message.data()));
  }

 private:
  const CudnnLibrary& library_;
  cudnnHandle_t handle_ = nullptr;
};

class Descriptor {
 public:
  /// `what` names the descriptor in messages.
  Descriptor(const Session& session, cudnnBackendDescriptorType_t type, const char* what)
      : session_(&session), what_(what) {
    check(session.library().create_descriptor(type, &handle_), "cudnnBackendCreateDescriptor");
  }
  Descriptor(Descriptor&& other) noexcept
      : session_(other.session_), what_(other.what_), handle_(std::exchange(other.handle_, nullptr)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (handle_ != nullptr) (void)session_->library().destroy_descriptor(handle_);
  }
  [[nodiscard]] cudnnBackendDescriptor_t get() const { return handle_; }

  template <typename Value, std::size_t kCount>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
           const std::array<Value, kCount>& values) {
    check(session_->library().set_attribute(handle_, name, type, kCount, values.data()), "cudnnBackendSetAttribute");
  }
  template <typename Value>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const Value& value) {
    set(name, type, std::array{value});
  }
  void set(cudnnBackendAttributeName_t name, const Descriptor& other) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, other.handle_);
  }
  void finalize() { check(session_->library().finalize(handle_), "cudnnBackendFinalize"); }

  [[nodiscard]] std::int64_t number(cudnnBackendAttributeName_t name) const {
    std::int64_t count = 0;
    std::int64_t value = 0;
    check(session_->library().get_attribute(handle_, name, CUDNN_TYPE_INT64, 1, &count, &value),
          "cudnnBackendGetAttribute");
    return value;
  }
  /// cuDNN fills in `descriptors`; returns the number of filled ones. Without descriptors, returns the largest possible
  /// number.
  [[nodiscard]] std::int64_t fill(cudnnBackendAttributeName_t name, const std::vector<Descriptor>& others) const {
    std::vector<cudnnBackendDescriptor_t> handles;
    handles.reserve(others.size());
    for (const Descriptor& other : others) handles.push_back(other.handle_);
    std::int64_t count = 0;
    check(session_->library().get_attribute(handle_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                            static_cast<std::int64_t>(handles.size()), &count,
                                            handles.empty() ? nullptr : handles.data()),
          "cudnnBackendGetAttribute");
    return count;
  }

 private:
  void check(cudnnStatus_t status, const char* call) const {
    if (status != CUDNN_STATUS_SUCCESS) session_->check(status, fmt::format("{} of the {}", call, what_));
  }

  const Session* session_;
  const char* what_;
  cudnnBackendDescriptor_t handle_ = nullptr;
};

/// Names of the tensors in a call.
enum Uid : std::int64_t {
  kQueries = 1,
  kKeys,
  kValues,
  kResults,
  kScale,
  kQueryTokens,
  kKvTokens,
  kKeyPages,
  kValuePages
};

/// Calls that alternate between the sets of an AttentionOp's cache.
class CudnnSdpa {
 public:
  CudnnSdpa(std::shared_ptr<const Session> session, const AttentionOp& memory, CudnnForm form)
      : session_(std::move(session)),
        paged_(form == CudnnForm::paged),
        scale_(1.0F / std::sqrt(static_cast<float>(memory.heads().size))),
        batch_(memory.kv_tokens().size()) {
    const auto call = cudnn_call(form, memory.heads(), memory.kv_tokens(), memory.sets());
    if (!call) throw Refusal("the pages of KV are too small for sequences of different lengths");
    call_ = *call;
    page_table_ = uploaded(cudnn_page_table(memory.table(), static_cast<std::int64_t>(batch_)));
    query_tokens_ = uploaded(std::vector<std::int32_t>(batch_, 1));
    kv_tokens_ = uploaded(std::vector<std::int32_t>(memory.kv_tokens().begin(), memory.kv_tokens().end()));
    describe(memory.number() == Number::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF);
    choose_plan();
    pack(memory);
  }
  CudnnSdpa(const CudnnSdpa&) = delete;
  CudnnSdpa& operator=(const CudnnSdpa&) = delete;

  [[nodiscard]] const CudnnCall& call() const { return call_; }

  void enqueue(cudaStream_t stream) {
    session_->check(session_->library().set_stream(session_->handle(), stream), "cudnnSetStream");
    session_->check(session_->library().execute(session_->handle(), plan_->get(), packs_[next_].get()),
                    "cudnnBackendExecute");
    next_ = (next_ + 1) % packs_.size();
  }

 private:
  Descriptor& add(cudnnBackendDescriptorType_t type, const char* what) {
    return parts_.emplace_back(*session_, type, what);
  }

  const Descriptor& tensor(Uid uid, const char* what, cudnnDataType_t type, const CudnnTensor& shape) {
    constexpr std::int64_t kAlignment = 16;
    Descriptor& one = add(CUDNN_BACKEND_TENSOR_DESCRIPTOR, what);
    one.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, std::int64_t{uid});
    one.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
    one.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, shape.sizes);
    one.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, shape.strides);
    one.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, kAlignment);
    if (uid == kScale) one.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, true);
    one.finalize();
    return one;
  }

  /// A graph of one operation. Lengths are the only mask, because each query is the last token of its sequence.
  void describe(cudnnDataType_t type) {
    // References to the parts must stay valid.
    constexpr std::size_t kMostParts = 16;
    parts_.reserve(kMostParts);
    const CudnnTensor one{{1, 1, 1, 1}, {1, 1, 1, 1}};
    const Descriptor& queries = tensor(kQueries, "queries", type, call_.queries);
    const Descriptor& keys = tensor(kKeys, "keys", type, call_.cache);
    const Descriptor& values = tensor(kValues, "values", type, call_.cache);
    const Descriptor& results = tensor(kResults, "results", type, call_.queries);
    const Descriptor& scale = tensor(kScale, "scale", CUDNN_DATA_FLOAT, one);
    const Descriptor& query_tokens = tensor(kQueryTokens, "query lengths", CUDNN_DATA_INT32, call_.lengths);
    const Descriptor& kv_tokens = tensor(kKvTokens, "KV lengths", CUDNN_DATA_INT32, call_.lengths);
    Descriptor& attention = add(CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR, "attention operation");
    attention.set(CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, queries);
    attention.set(CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, keys);
    attention.set(CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, values);
    attention.set(CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, results);
    attention.set(CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, scale);
    attention.set(CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_QDESC, query_tokens);
    attention.set(CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_KVDESC, kv_tokens);
    if (paged_) {
      const Descriptor& key_pages = tensor(kKeyPages, "page table of keys", CUDNN_DATA_INT32, call_.page_table);
      const Descriptor& value_pages = tensor(kValuePages, "page table of values", CUDNN_DATA_INT32, call_.page_table);
      attention.set(CUDNN_ATTR_OPERATION_SDPA_FWD_PAGE_TABLE_KDESC, key_pages);
      attention.set(CUDNN_ATTR_OPERATION_SDPA_FWD_PAGE_TABLE_VDESC, value_pages);
    }
    attention.finalize();
    graph_.emplace(*session_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "graph");
    graph_->set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, session_->handle());
    graph_->set(CUDNN_ATTR_OPERATIONGRAPH_OPS, attention);
    graph_->finalize();
  }

  /// Uses the heuristic's first choice that can be planned, as engines do.
  void choose_plan() {
    heuristic_.emplace(*session_, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "heuristic");
    heuristic_->set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, *graph_);
    heuristic_->set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
    heuristic_->finalize();
    const std::int64_t most = heuristic_->fill(CUDNN_ATTR_ENGINEHEUR_RESULTS, {});
    engines_.reserve(static_cast<std::size_t>(most));
    for (std::int64_t i = 0; i < most; ++i) {
      engines_.emplace_back(*session_, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "engine's configuration");
    }
    const std::int64_t found = most == 0 ? 0 : heuristic_->fill(CUDNN_ATTR_ENGINEHEUR_RESULTS, engines_);
    std::string reason = "cuDNN has no engine for this case";
    for (std::int64_t i = 0; i < found && !plan_; ++i) {
      try {
        Descriptor plan(*session_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "plan");
        plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, session_->handle());
        plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engines_[static_cast<std::size_t>(i)]);
        plan.finalize();
        plan_.emplace(std::move(plan));
      } catch (const Refusal& refusal) {
        reason = refusal.what();
      }
    }
    if (!plan_) throw Refusal(reason);
    const std::int64_t bytes = plan_->number(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
    if (bytes > 0) workspace_ = DeviceMemory(bytes);
  }

  void pack(const AttentionOp& memory) {
    const std::int64_t row = static_cast<std::int64_t>(batch_) * call_.page_table.sizes[2];
    packs_.reserve(static_cast<std::size_t>(call_.sets));
    for (std::int64_t set = 0; set < call_.sets; ++set) {
      constexpr std::int64_t kNumberBytes = 2;
      const std::int64_t offset = set * call_.set_numbers * kNumberBytes;
      void* pages = page_table_.as<std::int32_t>() + set * row;
      const std::array<std::pair<std::int64_t, void*>, 9> all{{{kQueries, memory.queries().data()},
                                                               {kKeys, memory.keys().data() + offset},
                                                               {kValues, memory.values().data() + offset},
                                                               {kResults, memory.results().data()},
                                                               {kScale, &scale_},
                                                               {kQueryTokens, query_tokens_.data()},
                                                               {kKvTokens, kv_tokens_.data()},
                                                               {kKeyPages, pages},
                                                               {kValuePages, pages}}};
      std::array<std::int64_t, all.size()> uids{};
      std::array<void*, all.size()> pointers{};
      for (std::size_t i = 0; i < all.size(); ++i) std::tie(uids[i], pointers[i]) = all[i];
      Descriptor& one = packs_.emplace_back(*session_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "call's pointers");
      if (paged_) {
        one.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, uids);
        one.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers);
      } else {
        one.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, without_pages(uids));
        one.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, without_pages(pointers));
      }
      void* workspace = workspace_.data();
      one.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
      one.finalize();
    }
  }
  template <typename Value>
  static std::array<Value, 7> without_pages(const std::array<Value, 9>& all) {
    std::array<Value, 7> some{};
    std::copy_n(all.begin(), some.size(), some.begin());
    return some;
  }

  std::shared_ptr<const Session> session_;
  bool paged_;
  float scale_;  // cuDNN reads the value at every call
  std::size_t batch_;
  CudnnCall call_{};
  DeviceMemory page_table_;
  DeviceMemory query_tokens_;
  DeviceMemory kv_tokens_;
  DeviceMemory workspace_;
  std::vector<Descriptor> parts_;
  std::optional<Descriptor> graph_;
  std::optional<Descriptor> heuristic_;
  std::vector<Descriptor> engines_;
  std::optional<Descriptor> plan_;
  std::vector<Descriptor> packs_;
  std::size_t next_ = 0;
};

class CudnnOp : public ComputeOp {
 public:
  CudnnOp(std::unique_ptr<CudnnSdpa> calls, std::unique_ptr<AttentionOp> memory, std::string kernel)
      : memory_(std::move(memory)), calls_(std::move(calls)), kernel_(std::move(kernel)) {}
  void enqueue(cudaStream_t stream) override {
    try {
      calls_->enqueue(stream);
    } catch (const Refusal& refusal) {
      throw DeviceError(refusal.what(), false);
    }
  }
  [[nodiscard]] std::string kernel() const override { return kernel_; }

 private:
  std::unique_ptr<AttentionOp> memory_;
  std::unique_ptr<CudnnSdpa> calls_;
  std::string kernel_;
};

}  // namespace

class Cudnn {
 public:
  Cudnn() {
    const CudnnLibrary* library = find_cudnn();
    if (library == nullptr) {
      missing_ = fmt::format("no libcudnn.so.{} was found", CUDNN_MAJOR);
      return;
    }
    try {
      session_ = std::make_shared<const Session>(*library);
    } catch (const Refusal& refusal) {
      missing_ = refusal.what();
    }
  }

  std::unique_ptr<ComputeOp> replace(Gpu& gpu, std::unique_ptr<AttentionOp> own) {
    std::string reasons = missing_;
    for (const CudnnForm form : kCudnnForms) {
      if (session_ == nullptr) break;
      std::string reason = trial(gpu, form, own->heads(), own->number());
      std::unique_ptr<CudnnSdpa> calls;
      if (reason.empty()) reason = reason_against([&] { calls = first_call(gpu, *own, form); });
      if (reason.empty()) {
        std::string kernel = cudnn_kernel(session_->library().version(), form);
        return std::make_unique<CudnnOp>(std::move(calls), std::move(own), std::move(kernel));
      }
      reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ",
                             form == CudnnForm::paged ? "with pages" : "without pages", reason);
    }
    own->set_note("attention is not measured with cuDNN: " + reasons);
    return own;
  }

 private:
  /// Empty when `attempt` succeeds. Rethrows if the context is lost: no fallback can work then.
  template <typename Attempt>
  static std::string reason_against(const Attempt& attempt) {
    try {
      attempt();
    } catch (const Refusal& refusal) {
      return refusal.what();
    } catch (const OutOfMemory& error) {
      return error.what();
    } catch (const DeviceError& error) {
      if (error.sticky()) throw;
      return error.what();
    }
    return {};
  }

  /// Runs the operation once, so that errors appear before the timing.
  std::unique_ptr<CudnnSdpa> first_call(Gpu& gpu, const AttentionOp& memory, CudnnForm form) const {
    auto calls = std::make_unique<CudnnSdpa>(session_, memory, form);
    calls->enqueue(gpu.stream(StreamOf::compute));
    gpu.finish();
    return calls;
  }

  const std::string& trial(Gpu& gpu, CudnnForm form, const Heads& heads, Number number) {
    const auto [entry, is_new] = trials_.try_emplace({form, number, heads.query, heads.kv, heads.size});
    if (is_new) entry->second = reason_against([&] { compare(gpu, form, heads, number); });
    return entry->second;
  }

  void compare(Gpu& gpu, CudnnForm form, const Heads& heads, Number number) const {
    const Sequences sequences = cudnn_trial();
    const AttentionOp memory(gpu, heads, sequences, number, kTrialSets);
    const auto calls = first_call(gpu, memory, form);
    const auto queries = numbers_in(memory.queries(), number);
    const auto got = numbers_in(memory.results(), number);
    auto keys = numbers_in(memory.keys(), number);
    auto values = numbers_in(memory.values(), number);
    PageTable table = memory.table();
    if (form == CudnnForm::contiguous) {
      table = pages_of_contiguous(calls->call().cache, keys).table;
      keys = pages_of_contiguous(calls->call().cache, keys).numbers;
      values = pages_of_contiguous(calls->call().cache, values).numbers;
    }
    const auto wrong = first_wrong(got, reference_attention(heads, sequences, table, queries, keys, values), number);
    if (wrong) throw Refusal(*wrong);
  }

  std::shared_ptr<const Session> session_;  // null: cuDNN is not available
  std::string missing_;
  std::map<std::tuple<CudnnForm, Number, std::int64_t, std::int64_t, std::int64_t>, std::string> trials_;
};

std::unique_ptr<ComputeOp> by_cudnn(Gpu& gpu, std::unique_ptr<AttentionOp> own) {
  if (gpu.cudnn() == nullptr) gpu.cudnn() = std::make_shared<Cudnn>();
  return gpu.cudnn()->replace(gpu, std::move(own));
}

}  // namespace spillway::calibrate::gpu
