#include "head/testing/torn_file_system.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/check.h"

namespace cohort::head {
namespace {

namespace fs = std::filesystem;

using ::rocksdb::IODebugContext;
using ::rocksdb::IOOptions;
using ::rocksdb::IOStatus;
using ::rocksdb::Slice;

IOStatus Off() { return IOStatus::IOError("the power is off"); }

}  // namespace

// An open file: reports what it does to the file system.
class TornFileSystem::File final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  File(TornFileSystem& system, std::shared_ptr<Inode> inode,
       std::unique_ptr<rocksdb::FSWritableFile> target)
      : FSWritableFileOwnerWrapper(std::move(target)),
        system_(system),
        inode_(std::move(inode)) {}

  IOStatus Append(const Slice& data, const IOOptions& options,
                  IODebugContext* debug) override {
    MutexLock lock(system_.mutex_);
    if (IOStatus status = system_.Change(); !status.ok()) return status;
    inode_->size += data.size();
    return FSWritableFileOwnerWrapper::Append(data, options, debug);
  }
  IOStatus Append(const Slice& data, const IOOptions& options,
                  const rocksdb::DataVerificationInfo&,
                  IODebugContext* debug) override {
    return Append(data, options, debug);
  }
  // A truncation counts as durable at once: what a crash brings back is bytes
  // that the store has judged before.
  IOStatus Truncate(uint64_t size, const IOOptions& options,
                    IODebugContext* debug) override {
    MutexLock lock(system_.mutex_);
    if (IOStatus status = system_.Change(); !status.ok()) return status;
    inode_->size = size;
    inode_->synced = std::min(inode_->synced, size);
    return FSWritableFileOwnerWrapper::Truncate(size, options, debug);
  }
  // The real sync is left out: no test pulls the plug of this machine.
  IOStatus Sync(const IOOptions&, IODebugContext*) override {
    MutexLock lock(system_.mutex_);
    if (IOStatus status = system_.Change(); !status.ok()) return status;
    inode_->synced = inode_->size;
    return IOStatus::OK();
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
    return Sync(options, debug);
  }

 private:
  TornFileSystem& system_;
  const std::shared_ptr<Inode> inode_;
};

class TornFileSystem::Directory final : public rocksdb::FSDirectoryWrapper {
 public:
  Directory(TornFileSystem& system, std::string path,
            std::unique_ptr<rocksdb::FSDirectory> target)
      : FSDirectoryWrapper(std::move(target)),
        system_(system),
        path_(std::move(path)) {}

  IOStatus Fsync(const IOOptions&, IODebugContext*) override {
    return system_.SyncDirectory(path_);
  }
  IOStatus FsyncWithDirOptions(const IOOptions&, IODebugContext*,
                               const rocksdb::DirFsyncOptions&) override {
    return system_.SyncDirectory(path_);
  }

 private:
  TornFileSystem& system_;
  const std::string path_;
};

TornFileSystem::TornFileSystem(std::string root)
    : FileSystemWrapper(rocksdb::FileSystem::Default()),
      root_(std::move(root)),
      inodes_(root_ + ".inodes") {
  fs::create_directory(inodes_);
}

TornFileSystem::~TornFileSystem() {
  std::error_code ignored;
  fs::remove_all(inodes_, ignored);
}

void TornFileSystem::FailAfter(int changes) {
  MutexLock lock(mutex_);
  changes_left_ = changes;
}

bool TornFileSystem::is_off() const {
  MutexLock lock(mutex_);
  return off_;
}

int TornFileSystem::bytes_forgotten() const {
  MutexLock lock(mutex_);
  return bytes_forgotten_;
}

int TornFileSystem::names_forgotten() const {
  MutexLock lock(mutex_);
  return names_forgotten_;
}

IOStatus TornFileSystem::Change() {
  if (changes_left_ == 0) off_ = true;
  if (off_) return Off();
  if (changes_left_ > 0) --changes_left_;
  return IOStatus::OK();
}

bool TornFileSystem::Follows(const std::string& path) const {
  return absl::StartsWith(path, root_ + "/");
}

IOStatus TornFileSystem::NewWritableFile(
    const std::string& path, const rocksdb::FileOptions& options,
    std::unique_ptr<rocksdb::FSWritableFile>* file, IODebugContext* debug) {
  if (!Follows(path)) {
    return FileSystemWrapper::NewWritableFile(path, options, file, debug);
  }
  MutexLock lock(mutex_);
  if (IOStatus status = Change(); !status.ok()) return status;
  // A new file under the name; the old one may come back.
  fs::remove(path);
  live_.erase(path);
  std::unique_ptr<rocksdb::FSWritableFile> target;
  IOStatus status =
      FileSystemWrapper::NewWritableFile(path, options, &target, debug);
  if (!status.ok()) return status;
  auto inode = std::make_shared<Inode>();
  inode->link = absl::StrCat(inodes_, "/", next_inode_++);
  fs::create_hard_link(path, inode->link);
  live_[path] = inode;
  *file = std::make_unique<File>(*this, std::move(inode), std::move(target));
  return status;
}

IOStatus TornFileSystem::ReopenWritableFile(
    const std::string& path, const rocksdb::FileOptions& options,
    std::unique_ptr<rocksdb::FSWritableFile>* file, IODebugContext* debug) {
  MutexLock lock(mutex_);
  const auto known = live_.find(path);
  if (known == live_.end()) return IOStatus::PathNotFound(path);
  if (IOStatus status = Change(); !status.ok()) return status;
  std::unique_ptr<rocksdb::FSWritableFile> target;
  IOStatus status =
      FileSystemWrapper::ReopenWritableFile(path, options, &target, debug);
  if (!status.ok()) return status;
  *file = std::make_unique<File>(*this, known->second, std::move(target));
  return status;
}

IOStatus TornFileSystem::ReuseWritableFile(
    const std::string& path, const std::string&, const rocksdb::FileOptions&,
    std::unique_ptr<rocksdb::FSWritableFile>*, IODebugContext*) {
  return IOStatus::NotSupported("overwriting", path);
}

IOStatus TornFileSystem::NewRandomRWFile(
    const std::string& path, const rocksdb::FileOptions&,
    std::unique_ptr<rocksdb::FSRandomRWFile>*, IODebugContext*) {
  return IOStatus::NotSupported("overwriting", path);
}

IOStatus TornFileSystem::NewDirectory(
    const std::string& path, const IOOptions& options,
    std::unique_ptr<rocksdb::FSDirectory>* directory, IODebugContext* debug) {
  std::unique_ptr<rocksdb::FSDirectory> target;
  IOStatus status =
      FileSystemWrapper::NewDirectory(path, options, &target, debug);
  if (!status.ok()) return status;
  *directory = std::make_unique<Directory>(*this, path, std::move(target));
  return status;
}

IOStatus TornFileSystem::DeleteFile(const std::string& path,
                                    const IOOptions& options,
                                    IODebugContext* debug) {
  MutexLock lock(mutex_);
  if (live_.count(path) != 0) {
    if (IOStatus status = Change(); !status.ok()) return status;
    live_.erase(path);
  }
  return FileSystemWrapper::DeleteFile(path, options, debug);
}

IOStatus TornFileSystem::RenameFile(const std::string& from,
                                    const std::string& to,
                                    const IOOptions& options,
                                    IODebugContext* debug) {
  MutexLock lock(mutex_);
  const auto moved = live_.find(from);
  if (moved != live_.end()) {
    if (IOStatus status = Change(); !status.ok()) return status;
    live_[to] = moved->second;
    live_.erase(moved);
  }
  return FileSystemWrapper::RenameFile(from, to, options, debug);
}

IOStatus TornFileSystem::SyncDirectory(const std::string& path) {
  MutexLock lock(mutex_);
  if (IOStatus status = Change(); !status.ok()) return status;
  const auto is_in = [&path](const Names::value_type& entry) {
    return fs::path(entry.first).parent_path() == fs::path(path);
  };
  std::erase_if(durable_, is_in);
  std::copy_if(live_.begin(), live_.end(),
               std::inserter(durable_, durable_.end()), is_in);
  return IOStatus::OK();
}

TornFileSystem::Names TornFileSystem::Survivors(Random& random) {
  Names names = durable_;
  names.insert(live_.begin(), live_.end());
  // All unsynced names are lost, none are, or each as it comes.
  const uint64_t style = random.Below(3);
  Names survivors;
  for (const auto& entry : names) {
    const std::string& name = entry.first;
    const auto old_name = durable_.find(name);
    const auto new_name = live_.find(name);
    const bool same = old_name != durable_.end() && new_name != live_.end() &&
                      old_name->second == new_name->second;
    const bool keep_new =
        same || style == 0 || (style == 2 && random.Below(2) == 0);
    if (!keep_new) ++names_forgotten_;
    if (keep_new && new_name != live_.end()) survivors.insert(*new_name);
    if (!keep_new && old_name != durable_.end()) survivors.insert(*old_name);
  }
  return survivors;
}

void TornFileSystem::Tear(Random& random, Inode& inode) {
  const uint64_t loose = inode.size - inode.synced;
  if (loose == 0) return;
  const uint64_t kept = random.Below(4) == 0 ? 0 : random.Below(loose + 1);
  if (kept < loose) ++bytes_forgotten_;
  const uint64_t good = inode.synced + kept;
  fs::resize_file(inode.link, good);
  if (random.Below(3) == 0) {
    // The size reached the disk, the bytes did not.
    fs::resize_file(inode.link, good + random.Below(loose - kept + 1));
  }
  inode.size = fs::file_size(inode.link);
  inode.synced = inode.size;
}

void TornFileSystem::Reboot(Random& random) {
  MutexLock lock(mutex_);
  Names survivors = Survivors(random);
  for (const auto& [name, inode] : live_) fs::remove(name);
  for (const auto& [name, inode] : survivors) {
    Tear(random, *inode);
    fs::remove(name);
    fs::create_hard_link(inode->link, name);
  }
  live_ = survivors;
  durable_ = std::move(survivors);
  off_ = false;
  changes_left_ = -1;
}

}  // namespace cohort::head
