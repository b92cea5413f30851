// Replays requests for keys on a database, as many at a time as there are threads, and looks at every value that it reads.
//
//   replay --db=/db --requests=FILE [--fs_uri=openftl://DRIVE] [--name=NAME] [--threads=N] [--value_size=BYTES]
//          [--write_buffer_size=BYTES] [--use_direct_reads] [--use_direct_io_for_flush_and_compaction]
//
// A line of FILE is a request, and a key is a number:
//
//   i 7       insert: it is new               r 7       read
//   u 7       update: it has another value    s 7 50    scan: 50 keys from it on, with their values
//   m 7       read, and write when that is there
//
// Each thread takes the next request when its last one has ended. What is printed has the form of db_bench: a line of a rate for
// all requests, one for those that read and one for those that write, each with its percentiles, and counts. A value has the
// number of its key, so that a wrong one ends the program with 1. When all requests have ended, what is in memory is flushed and
// compacted, outside the time that was measured, so that a drive has programmed all that the requests cost it.
//
// The words of the command line are those of db_bench where it has them. The plugin is loaded with LD_PRELOAD, as there.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "rocksdb/convenience.h"
#include "rocksdb/db.h"
#include "rocksdb/filter_policy.h"
#include "rocksdb/statistics.h"
#include "rocksdb/table.h"
#include "rocksdb/version.h"

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "replay: %s\n", what.c_str());
  // Other threads are at work, and nothing of them may be taken down below them.
  std::_Exit(1);
}

void Check(const rocksdb::Status& status, const char* what) {
  if (!status.ok()) Fail(std::string(what) + ": " + status.ToString());
}

struct Request {
  char kind;
  uint64_t key;
  uint32_t count;

  bool Writes() const { return kind == 'i' || kind == 'u' || kind == 'm'; }
};

std::vector<Request> ReadRequests(const std::string& file) {
  std::ifstream lines(file);
  if (!lines) Fail("--requests=" + file + ": it cannot be read");
  std::vector<Request> requests;
  for (std::string line; std::getline(lines, line);) {
    Request request = {};
    int end = -1;
    if (line[0] == 's') {
      std::sscanf(line.c_str(), "%c %lu %u%n", &request.kind, &request.key, &request.count, &end);
    } else if (std::strchr("iurm", line[0]) != nullptr) {
      std::sscanf(line.c_str(), "%c %lu%n", &request.kind, &request.key, &end);
    }
    // Nothing was missing, and nothing is left.
    if (end != static_cast<int>(line.size())) {
      Fail("--requests=" + file + ": line " + std::to_string(requests.size() + 1) + " is \"" + line +
           "\": expected one of i, r, u, m and a key, or s, a key and a count");
    }
    requests.push_back(request);
  }
  return requests;
}

struct Options {
  std::string db, uri, requests, name = "requests";
  uint64_t threads = 1, value_size = 1024, write_buffer_size = 64 << 20;
  bool direct_reads = false, direct_writes = false;

  static Options Parse(int count, char** words) {
    Options options;
    for (int at = 1; at < count; at++) {
      const std::string word = words[at];
      const size_t equals = word.find('=');
      const std::string name = word.substr(0, equals);
      const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
      const auto number = [&](uint64_t least) {
        char* end = nullptr;
        const uint64_t found = std::strtoull(value.c_str(), &end, 10);
        if (value.empty() || *end != 0 || found < least) Fail(word + ": give a number from " + std::to_string(least) + " on");
        return found;
      };
      if (name == "--db") options.db = value;
      else if (name == "--fs_uri") options.uri = value;
      else if (name == "--requests") options.requests = value;
      else if (name == "--name") options.name = value;
      else if (name == "--threads") options.threads = number(1);
      else if (name == "--value_size") options.value_size = number(16);
      else if (name == "--write_buffer_size") options.write_buffer_size = number(64 << 10);
      else if (word == "--use_direct_reads") options.direct_reads = true;
      else if (word == "--use_direct_io_for_flush_and_compaction") options.direct_writes = true;
      else Fail(word + ": not known; the beginning of bench/replay.cc has all words");
    }
    if (options.db.empty() || options.requests.empty()) Fail("give --db=FOLDER and --requests=FILE");
    return options;
  }
};

// The keys of the key-value drive that it is compared with: eight bytes in an order that is not that of their numbers.
std::string KeyOf(uint64_t number) {
  const uint64_t bits = __builtin_bswap64(number * 0x9e3779b97f4a7c15u);
  return std::string(reinterpret_cast<const char*>(&bits), sizeof bits);
}

// What a thread did.
struct Done {
  std::vector<uint32_t> reads, writes;  // nanoseconds; 4 s at most
  uint64_t missing = 0, scanned = 0, stored = 0;
};

class Replay {
 public:
  Replay(const Options& options, rocksdb::DB* db, const std::vector<Request>& requests)
      : options_(options), db_(db), requests_(requests) {}

  // Does all requests. Returns what each thread did.
  std::vector<Done> Run() {
    std::vector<Done> done(options_.threads);
    std::vector<std::thread> threads;
    for (Done& one : done) threads.emplace_back([this, &one] { Work(&one); });
    for (std::thread& thread : threads) thread.join();
    return done;
  }

 private:
  void Work(Done* done) {
    // Bytes that do not repeat, so that nothing below can compress or share them.
    std::string noise(2 * options_.value_size, 0);
    uint64_t chance = reinterpret_cast<uintptr_t>(done) | 1;
    for (char& byte : noise) {
      chance = chance * 6364136223846793005u + 1442695040888963407u;
      byte = static_cast<char>(chance >> 56);
    }
    for (;;) {
      const size_t at = next_.fetch_add(1, std::memory_order_relaxed);
      if (at >= requests_.size()) break;
      const Request request = requests_[at];
      const Clock::time_point began = Clock::now();
      if (request.kind == 's') Scan(request, done);
      if (request.kind == 'r' || request.kind == 'm') Get(request.key, done);
      if (request.Writes()) Put(request.key, noise.data() + (at * 31) % options_.value_size, done);
      const int64_t took = std::chrono::nanoseconds(Clock::now() - began).count();
      (request.Writes() ? done->writes : done->reads)
          .push_back(static_cast<uint32_t>(std::min<int64_t>(took, UINT32_MAX)));
    }
  }

  void Put(uint64_t key, const char* noise, Done* done) {
    std::string value(noise, options_.value_size);
    std::memcpy(value.data(), &key, sizeof key);
    Check(db_->Put(rocksdb::WriteOptions(), KeyOf(key), value), "Put");
    done->stored += value.size();
  }

  void Get(uint64_t key, Done* done) {
    std::string value;
    const rocksdb::Status status = db_->Get(rocksdb::ReadOptions(), KeyOf(key), &value);
    // What was inserted last may not be there yet.
    if (status.IsNotFound()) {
      done->missing++;
      return;
    }
    Check(status, "Get");
    Expect(KeyOf(key), value);
  }

  void Scan(const Request& request, Done* done) {
    const std::unique_ptr<rocksdb::Iterator> iterator(db_->NewIterator(rocksdb::ReadOptions()));
    uint32_t left = request.count;
    for (iterator->Seek(KeyOf(request.key)); left > 0 && iterator->Valid(); iterator->Next(), left--) {
      Expect(iterator->key(), iterator->value());
    }
    Check(iterator->status(), "a scan");
    done->scanned += request.count - left;
  }

  void Expect(const rocksdb::Slice& key, const rocksdb::Slice& value) const {
    uint64_t number = 0;
    std::memcpy(&number, value.data(), std::min(value.size(), sizeof number));
    if (value.size() != options_.value_size || key != KeyOf(number)) {
      Fail("a value of " + std::to_string(value.size()) + " bytes, of key " + std::to_string(number) +
           ", is found under the key " + key.ToString(true));
    }
  }

  const Options& options_;
  rocksdb::DB* const db_;
  const std::vector<Request>& requests_;
  std::atomic<size_t> next_{0};
};

uint64_t Property(rocksdb::DB* db, const std::string& name) {
  uint64_t found = 0;
  if (!db->GetIntProperty(name, &found)) Fail("this RocksDB has no property " + name);
  return found;
}

// Waits until nothing is left to be compacted. Version 7 has no call for it.
void WaitForCompactions(rocksdb::DB* db) {
  const auto is_busy = [db] {
    for (const char* name : {"rocksdb.num-running-flushes", "rocksdb.mem-table-flush-pending",
                             "rocksdb.num-running-compactions", "rocksdb.compaction-pending"}) {
      if (Property(db, name) > 0) return true;
    }
    return false;
  };
  while (is_busy()) {
    // Where there is no room, nothing goes on until there is some, which nobody makes.
    if (Property(db, "rocksdb.background-errors") > 0) Fail("a flush or a compaction failed: the drive may be too small");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void Print(const std::string& name, std::vector<uint32_t>* took, double seconds) {
  if (took->empty()) return;
  std::sort(took->begin(), took->end());
  uint64_t sum = 0;
  for (const uint32_t one : *took) sum += one;
  const auto micros = [&](double share) {
    return (*took)[std::min(took->size() - 1, static_cast<size_t>(share * took->size()))] / 1e3;
  };
  std::printf("%-12s : %11.3f micros/op %.0f ops/sec %.3f seconds %zu operations;\n", name.c_str(), sum / 1e3 / took->size(),
              took->size() / seconds, seconds, took->size());
  std::printf("Percentiles: P50: %.2f P99: %.2f P99.9: %.2f\n", micros(0.5), micros(0.99), micros(0.999));
}

}  // namespace

int main(int count, char** words) {
  const Options options = Options::Parse(count, words);
  const std::vector<Request> requests = ReadRequests(options.requests);
  rocksdb::Options of_database;
  rocksdb::Env* env = rocksdb::Env::Default();
  std::shared_ptr<rocksdb::Env> guard;  // outlives the database
  if (!options.uri.empty()) {
    Check(rocksdb::Env::CreateFromUri(rocksdb::ConfigOptions(), "", options.uri, &env, &guard), options.uri.c_str());
  }
  of_database.env = env;
  of_database.create_if_missing = true;
  of_database.compression = rocksdb::kNoCompression;
  of_database.write_buffer_size = options.write_buffer_size;
  of_database.target_file_size_base = options.write_buffer_size;
  of_database.max_bytes_for_level_base = 4 * options.write_buffer_size;
  of_database.max_background_jobs = 4;
  of_database.use_direct_reads = options.direct_reads;
  of_database.use_direct_io_for_flush_and_compaction = options.direct_writes;
  of_database.statistics = rocksdb::CreateDBStatistics();
  rocksdb::BlockBasedTableOptions tables;
  tables.no_block_cache = true;
  tables.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  of_database.table_factory.reset(rocksdb::NewBlockBasedTableFactory(tables));
  std::conditional_t<ROCKSDB_MAJOR < 11, rocksdb::DB*, std::unique_ptr<rocksdb::DB>> opened;
  Check(rocksdb::DB::Open(of_database, options.db, &opened), options.db.c_str());
  const std::unique_ptr<rocksdb::DB> db(std::move(opened));

  Replay replay(options, db.get(), requests);
  const Clock::time_point began = Clock::now();
  const std::vector<Done> each = replay.Run();
  const double seconds = std::chrono::duration<double>(Clock::now() - began).count();

  Check(db->FlushWAL(true), "the flush of the log");
  Check(db->Flush(rocksdb::FlushOptions()), "a flush");
  WaitForCompactions(db.get());
  Done all;
  for (const Done& one : each) {
    all.reads.insert(all.reads.end(), one.reads.begin(), one.reads.end());
    all.writes.insert(all.writes.end(), one.writes.begin(), one.writes.end());
    all.missing += one.missing, all.scanned += one.scanned, all.stored += one.stored;
  }
  std::vector<uint32_t> both = all.reads;
  both.insert(both.end(), all.writes.begin(), all.writes.end());
  Print(options.name, &both, seconds);
  Print("reads", &all.reads, seconds);
  Print("writes", &all.writes, seconds);
  const uint64_t of_tables = Property(db.get(), rocksdb::DB::Properties::kEstimateTableReadersMem);
  std::printf("%s\n", of_database.statistics->ToString().c_str());
  std::printf("replay.missing COUNT : %lu\nreplay.scanned COUNT : %lu\nreplay.stored.bytes COUNT : %lu\n", all.missing,
              all.scanned, all.stored);
  std::printf("replay.table.readers.bytes COUNT : %lu\n", of_tables);
  Check(db->Close(), "the end");
}
