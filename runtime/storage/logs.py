"""All logs of a data directory: what committed frames mean for their files.

Promises  items are applied in the journal's order, so that a deletion is done before its topic's name is used
          again; applying them twice is the same as once.
Never     is asked from two threads: everything here runs in the log lane.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from dovetail.core.ids import ordered
from dovetail.core.journal_format import Entry, Item
from dovetail.core.records import LogTrimmed, TopicCreated, TopicDeleted
from dovetail.core.state import Durable
from dovetail.runtime.storage.disk import Sync, SyncAll, SyncDir, Task, parent, remove_tree
from dovetail.runtime.storage.layout import TOPICS, StoreOptions, log_path, topic_path
from dovetail.runtime.storage.log import Loaded, LogFiles


class Place(Struct, frozen=True):
    """Where a topic's logs lie."""

    name: str
    first_log: int
    log_count: int


class Logs:
    """The files of every log, by the log's number."""

    def __init__(self, options: StoreOptions) -> None:
        self.files: dict[int, LogFiles] = {}
        self._options = options
        self._loaded = Loaded(options.indexes_loaded_max)
        self._places: dict[int, Place] = {}
        self._dirty: dict[int, LogFiles] = {}

    def know(self, durable: Durable) -> None:
        """Take over the topics and logs of a state, each log with its end."""
        for _, topic in ordered(durable.topics):
            ends = [durable.logs[topic.first_log + place].end for place in range(topic.log_count)]
            self._add(topic.id, topic.name, topic.first_log, topic.lanes, ends)

    def _add(self, topic: int, name: str, first_log: int, lanes: int, ends: Iterable[int]) -> None:
        width = max(1, lanes)
        count = 0
        for place, end in enumerate(ends):
            directory = log_path(name, place // width, place % width, lanes)
            number = first_log + place
            self.files.setdefault(number, LogFiles(number, directory, end, self._options, self._loaded))
            count += 1
        self._places[topic] = Place(name, first_log, count)

    def apply(self, items: Iterable[Item]) -> Task[None]:
        """Do to the files what the items of committed frames say."""
        waiting: dict[int, list[Entry]] = {}
        for item in items:
            if isinstance(item, Entry):
                waiting.setdefault(item.record.log, []).append(item)
            elif isinstance(item, TopicCreated):
                self._add(item.topic, item.name, item.first_log, item.lanes, item.starts)
            elif isinstance(item, TopicDeleted):
                yield from self._append(waiting)
                yield from self._delete(item.topic)
            elif isinstance(item, LogTrimmed):
                yield from self._append(waiting)
                files = self.files.get(item.log)
                if files is not None:
                    yield from files.trim(item.start)
        yield from self._append(waiting)

    def _append(self, waiting: dict[int, list[Entry]]) -> Task[None]:
        for number, entries in waiting.items():
            files = self.files.get(number)
            if files is not None:
                self._dirty[number] = files
                yield from files.append(entries)
        waiting.clear()

    def _delete(self, topic: int) -> Task[None]:
        place = self._places.get(topic)
        if place is None:
            return
        for number in range(place.first_log, place.first_log + place.log_count):
            self.files.pop(number, None)
            self._dirty.pop(number, None)
        yield from remove_tree(topic_path(place.name))
        # The name may be used again at once: what it stood for must not come back.
        yield SyncDir(TOPICS)
        del self._places[topic]

    def touch(self, files: LogFiles) -> None:
        """Include a log in the next `sync`."""
        self._dirty[files.log] = files

    def sync(self) -> Task[None]:
        """Put everything that was appended on the disk, names included."""
        dirty = [self._dirty[number] for number in sorted(self._dirty) if self._dirty[number].is_dirty]
        if len(dirty) > self._options.sync_each_max:
            for files in dirty:
                yield from files.write_indexes()
            yield SyncAll()
        else:
            yield from self._sync_each(dirty)
        for files in dirty:
            files.mark_synced()
        self._dirty.clear()

    def _sync_each(self, dirty: list[LogFiles]) -> Task[None]:
        directories: set[str] = set()
        for files in dirty:
            yield from files.write_indexes()
            for part in files.parts:
                if part.is_dirty:
                    yield Sync(part.path)
            if files.has_new_names:
                directories |= {files.directory, parent(files.directory), TOPICS}
        for directory in sorted(directories, reverse=True):
            yield SyncDir(directory)
