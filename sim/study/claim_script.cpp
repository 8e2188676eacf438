#include "sim/study/claim_script.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <lua.hpp>
#include <new>
#include <span>
#include <utility>

#include "sim/config/config.hpp"
#include "sim/core/embedded_file.hpp"
#include "sim/core/error.hpp"

namespace spillway::scripts {
/// sim/study/claim_library.lua, embedded in the binary by the build.
std::span<const EmbeddedFile> embedded_files();
}  // namespace spillway::scripts

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostDepth = 4;                                      // nesting of lists
constexpr std::array kConstructors{"make_point", "make_run_set"};  // for the library only, not for expressions
// Lua functions that give equal results on every machine and cannot reach files, time or modules. pairs is not one of
// them: its order is undefined.
constexpr std::array kBaseFunctions{"error", "ipairs", "type"};
constexpr std::array kMathFunctions{"abs", "ceil", "floor", "huge", "sqrt"};
constexpr std::array kWords{"and",      "break",  "do",   "else", "elseif", "end",  "false", "for",
                            "function", "goto",   "if",   "in",   "local",  "nil",  "not",   "or",
                            "repeat",   "return", "then", "true", "until",  "while"};

// Keys of the Lua registry: the names that expressions see, and the names that are nil.
constexpr const char* kEnvironment = "spillway.environment";
constexpr const char* kNothing = "spillway.nothing";

void stop_endless(lua_State* lua, lua_Debug*) { luaL_error(lua, "it runs too long"); }

/// Called by Lua, with the environment and the name, for a name without a value. Returns nil for a name set to null; an
/// unknown name is an error.
int missing_name(lua_State* lua) {
  lua_getfield(lua, LUA_REGISTRYINDEX, kNothing);
  lua_pushvalue(lua, 2);
  if (lua_rawget(lua, -2) != LUA_TNIL) {
    lua_pushnil(lua);
    return 1;
  }
  lua_createtable(lua, 0, 2);
  lua_pushvalue(lua, 2);
  lua_setfield(lua, -2, "unknown");
  lua_pushliteral(lua, "the expression");
  lua_setfield(lua, -2, "of");
  return lua_error(lua);
}

std::string chunk_of(const std::string& expression) { return "return " + expression; }

/// "[string "..."]:1: text" -> "text"
std::string without_place(const std::string& text) {
  constexpr std::string_view kPlace = "expression:1: ";
  const std::size_t at = text.find(kPlace);
  return at == std::string::npos ? text : text.substr(at + kPlace.size());
}

std::string text_at(lua_State* lua, int index) {
  if (lua_type(lua, index) != LUA_TSTRING) return luaL_typename(lua, index);
  std::size_t size = 0;
  const char* text = lua_tolstring(lua, index, &size);
  return {text, size};
}

/// A field of the table on top of the stack; empty when the field is not a text.
std::string text_field(lua_State* lua, const char* name) {
  lua_getfield(lua, -1, name);
  std::string text = lua_type(lua, -1) == LUA_TSTRING ? text_at(lua, -1) : std::string();
  lua_pop(lua, 1);
  return text;
}

bool compile(lua_State* lua, const std::string& expression) {
  const std::string chunk = chunk_of(expression);
  return luaL_loadbufferx(lua, chunk.data(), chunk.size(), "=expression", "t") == LUA_OK;
}

std::vector<std::string> to_list(const std::set<std::string>& names) { return {names.begin(), names.end()}; }

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

const std::set<std::string>& library_names() {
  static const std::set<std::string> kNames = [] {
    std::set<std::string> names(kBaseFunctions.begin(), kBaseFunctions.end());
    names.insert(kMathFunctions.begin(), kMathFunctions.end());
    std::unique_ptr<lua_State, void (*)(lua_State*)> lua(luaL_newstate(), lua_close);
    if (!lua) throw std::bad_alloc();
    luaL_openlibs(lua.get());
    const std::string_view library = scripts::embedded_files().front().content;
    const bool loaded = luaL_loadbuffer(lua.get(), library.data(), library.size(), "=claim_library") == LUA_OK &&
                        lua_pcall(lua.get(), 0, 1, 0) == LUA_OK;
    SPILLWAY_CHECK(loaded, text_at(lua.get(), -1));
    for (lua_pushnil(lua.get()); lua_next(lua.get(), -2) != 0; lua_pop(lua.get(), 1)) {
      names.insert(text_at(lua.get(), -2));
    }
    for (const char* name : kConstructors) names.erase(name);
    return names;
  }();
  return kNames;
}

}  // namespace

ClaimScript::ClaimScript() : lua_(lua_newstate(allocate, &memory_)) {
  if (lua_ == nullptr) throw std::bad_alloc();
  load_library();
}

ClaimScript::~ClaimScript() { lua_close(lua_); }

void* ClaimScript::allocate(void* memory, void* block, std::size_t old_size, std::size_t new_size) {
  auto& own = *static_cast<Memory*>(memory);
  const std::size_t held = block == nullptr ? 0 : old_size;  // if block is null, old_size is a type code
  if (new_size == 0) {
    own.used -= held;
    std::free(block);
    return nullptr;
  }
  if (own.limited && new_size > held && own.used - held + new_size > kMostBytes) return nullptr;
  void* moved = std::realloc(block, new_size);
  if (moved != nullptr) own.used += new_size - held;
  return moved;
}

void ClaimScript::load_library() {
  luaL_openlibs(lua_);
  lua_newtable(lua_);  // the environment stays at index 1
  const std::string_view library = scripts::embedded_files().front().content;
  const bool loaded = luaL_loadbufferx(lua_, library.data(), library.size(), "=claim_library", "t") == LUA_OK &&
                      lua_pcall(lua_, 0, 1, 0) == LUA_OK;
  SPILLWAY_CHECK(loaded, text_at(lua_, -1));
  for (const char* name : kConstructors) {
    lua_getfield(lua_, -1, name);
    lua_setfield(lua_, LUA_REGISTRYINDEX, name);
  }
  names_ = library_names();
  for (const std::string& name : names_) {
    lua_getfield(lua_, -1, name.c_str());
    lua_setfield(lua_, 1, name.c_str());
  }
  for (const char* name : kBaseFunctions) {
    lua_getglobal(lua_, name);
    lua_setfield(lua_, 1, name);
  }
  lua_getglobal(lua_, "math");
  for (const char* name : kMathFunctions) {
    lua_getfield(lua_, -1, name);
    lua_setfield(lua_, 1, name);
  }
  lua_createtable(lua_, 0, 1);
  lua_pushcfunction(lua_, missing_name);
  lua_setfield(lua_, -2, "__index");
  lua_setmetatable(lua_, 1);
  lua_pushvalue(lua_, 1);
  lua_setfield(lua_, LUA_REGISTRYINDEX, kEnvironment);
  lua_newtable(lua_);
  lua_setfield(lua_, LUA_REGISTRYINDEX, kNothing);
  // Texts have no methods. Expressions do not need rep and format; find and gsub can run for ever in one instruction,
  // so the instruction limit would not stop them.
  lua_pushliteral(lua_, "");
  lua_pushnil(lua_);
  lua_setmetatable(lua_, -2);
  lua_settop(lua_, 0);
}

void ClaimScript::push(const Json& value) {
  luaL_checkstack(lua_, 4, "value");
  if (value.is_boolean()) {
    lua_pushboolean(lua_, value.get<bool>() ? 1 : 0);
  } else if (value.is_number_integer()) {
    lua_pushinteger(lua_, value.get<std::int64_t>());
  } else if (value.is_number()) {
    lua_pushnumber(lua_, value.get<double>());
  } else if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    lua_pushlstring(lua_, text.data(), text.size());
  } else if (value.is_array()) {
    lua_createtable(lua_, static_cast<int>(value.size()), 0);
    lua_Integer at = 0;
    for (const Json& one : value) {
      push(one);
      lua_rawseti(lua_, -2, ++at);
    }
  } else if (value.is_object()) {
    lua_createtable(lua_, 0, static_cast<int>(value.size()));
    for (const auto& [name, one] : value.items()) {
      push(one);
      lua_setfield(lua_, -2, name.c_str());
    }
  } else {
    lua_pushnil(lua_);
  }
}

void ClaimScript::push_point(const ScriptPoint& point) {
  lua_getfield(lua_, LUA_REGISTRYINDEX, "make_point");
  Json missing = Json::object();
  lua_createtable(lua_, 0, static_cast<int>(point.values.size()));
  for (const auto& [name, value] : point.values) {
    point_names_.insert(name);
    if (value.is_null()) missing[name] = true;
    push(value);
    lua_setfield(lua_, -2, name.c_str());
  }
  push(missing);
  push(Json(point.texts));
  push(Json(point.label));
  lua_call(lua_, 4, 1);
}

/// Names the value on top of the stack.
void ClaimScript::assign(const std::string& name) {
  names_.insert(name);
  lua_getfield(lua_, LUA_REGISTRYINDEX, kNothing);
  lua_pushboolean(lua_, 1);
  if (!lua_isnil(lua_, -3)) {
    lua_pop(lua_, 1);
    lua_pushnil(lua_);
  }
  lua_setfield(lua_, -2, name.c_str());
  lua_pop(lua_, 1);
  lua_getfield(lua_, LUA_REGISTRYINDEX, kEnvironment);
  lua_insert(lua_, -2);
  lua_setfield(lua_, -2, name.c_str());
  lua_settop(lua_, 0);
}

void ClaimScript::set(const std::string& name, const Json& value) {
  push(value);
  assign(name);
}

void ClaimScript::set_points(const std::string& name, const std::vector<ScriptPoint>& points) {
  lua_getfield(lua_, LUA_REGISTRYINDEX, "make_run_set");
  lua_createtable(lua_, static_cast<int>(points.size()), 0);
  lua_Integer at = 0;
  for (const ScriptPoint& point : points) {
    push_point(point);
    lua_rawseti(lua_, -2, ++at);
  }
  lua_call(lua_, 1, 1);
  assign(name);
}

void ClaimScript::fail_unknown(const std::string& name, const std::string& of) const {
  const bool point = of == "a point";
  throw ScriptError(fmt::format("{} \"{}\"; {}", point ? "a point has no" : "there is no name", name,
                                suggestion(name, to_list(point ? point_names_ : names_))));
}

/// Throws the error on top of the stack.
void ClaimScript::fail() {
  std::string no_value;
  std::string unknown;
  std::string of;
  std::string text;
  if (lua_istable(lua_, -1)) {
    no_value = text_field(lua_, "no_value");
    unknown = text_field(lua_, "unknown");
    of = text_field(lua_, "of");
  } else {
    text = without_place(text_at(lua_, -1));
  }
  lua_settop(lua_, 0);
  if (!no_value.empty()) throw NoValue(no_value);
  if (!unknown.empty()) fail_unknown(unknown, of);
  throw ScriptError(text);
}

Json ClaimScript::result(int index, int depth) const {
  switch (lua_type(lua_, index)) {
    case LUA_TNIL:
      return nullptr;
    case LUA_TBOOLEAN:
      return lua_toboolean(lua_, index) != 0;
    case LUA_TSTRING:
      return text_at(lua_, index);
    case LUA_TNUMBER: {
      if (lua_isinteger(lua_, index) != 0) return static_cast<std::int64_t>(lua_tointeger(lua_, index));
      const double number = lua_tonumber(lua_, index);
      if (std::isnan(number)) throw NoValue("the value is undefined, as 0 / 0 is");
      if (std::isinf(number)) throw NoValue("the value is infinite");
      return number;
    }
    case LUA_TTABLE:
      break;
    default:
      throw ScriptError(fmt::format("gives a {} where a value is needed", luaL_typename(lua_, index)));
  }
  if (depth == 0 || lua_checkstack(lua_, 3) == 0) throw ScriptError("gives lists that are nested too deeply");
  const auto size = static_cast<lua_Integer>(lua_rawlen(lua_, index));
  Json list = Json::array();
  for (lua_Integer i = 1; i <= size; ++i) {
    lua_rawgeti(lua_, index, i);
    list.push_back(result(lua_gettop(lua_), depth - 1));
    lua_pop(lua_, 1);
  }
  lua_pushnil(lua_);
  for (lua_Integer seen = 0; lua_next(lua_, index) != 0; lua_pop(lua_, 1)) {
    if (++seen > size)
      throw ScriptError("gives a table with names, such as a point, where a value or a list is needed");
  }
  return list;
}

Json ClaimScript::evaluate(const std::string& expression) {
  memory_.limited = true;
  const bool compiled = compile(lua_, expression);
  bool evaluated = false;
  if (compiled) {
    lua_getfield(lua_, LUA_REGISTRYINDEX, kEnvironment);
    lua_setupvalue(lua_, -2, 1);
    lua_sethook(lua_, stop_endless, LUA_MASKCOUNT, kMostInstructions);
    evaluated = lua_pcall(lua_, 0, 1, 0) == LUA_OK;
    lua_sethook(lua_, nullptr, 0, 0);
  }
  memory_.limited = false;
  if (!evaluated) fail();
  try {
    Json value = result(lua_gettop(lua_), kMostDepth);
    lua_settop(lua_, 0);
    return value;
  } catch (...) {
    lua_settop(lua_, 0);
    throw;
  }
}

std::optional<std::string> ClaimScript::syntax_error(const std::string& expression) {
  std::unique_ptr<lua_State, void (*)(lua_State*)> lua(luaL_newstate(), lua_close);
  if (!lua) throw std::bad_alloc();
  if (compile(lua.get(), expression)) return std::nullopt;
  return without_place(text_at(lua.get(), -1));
}

std::set<std::string> names_in(std::string_view expression) {
  std::set<std::string> names;
  std::string name;
  for (const char c : expression) {
    if (is_name_character(c)) {
      name += c;
    } else if (!name.empty()) {
      names.insert(std::exchange(name, {}));
    }
  }
  if (!name.empty()) names.insert(name);
  return names;
}

bool may_be_named(const std::string& name) {
  if (name.empty() || !std::all_of(name.begin(), name.end(), is_name_character)) return false;
  if (name.front() >= '0' && name.front() <= '9') return false;
  return std::find(kWords.begin(), kWords.end(), name) == kWords.end() && !library_names().contains(name);
}

}  // namespace spillway
