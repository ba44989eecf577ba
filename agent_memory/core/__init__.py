"""The core of a memory: each call becomes one operation, and its flow works on the storage.

The modules, from a call down to the storage, for example from `AgentMemory.write` to `Backend.write`:

====================  ============================================================================================
**the call**
``tree``              `Tree`: one method for each call of a memory; ``versioned_tree``: those on earlier versions
``operation``         `Scope.operate`: names, guards, filters, the flow, observers; `Call` and `Flow`
``hooks``             the plugins of a memory; ``registration``: adds them; ``in_progress``: operations to wait for
``precondition``      `SHA256` and the preconditions that each call takes; ``results``: what calls return
``protected_names``   names that a view hides; ``actor``: the acting person
**its flow**
``flows``             read, write, append, delete; `until_won`; ``editing``: edit; ``part_flows``: files in parts
``tree_flows``        list, copy, rename, delete and forget directories; ``one_file``: failures of some of many files
``idempotency``       a change that is made at most once; ``receipts``: its stored fact
``versions``          what a store keeps of earlier states: ``settings``, ``keep``, ``find``, ``undo`` and others
**the store**
``store_record``      the record of the store: its form, and `KnownStore`: the record as this process knows it
``internal_trees``    the trees of this package's own data, and sweeps; ``stored_facts``: checks what is read from them
``conversation_marks``  trees and directories with or without a conversation
``blocking``          `BlockingStore`: flows for logs, tools of the command line and tests, without an operation
``sync_facade``       one implementation for the sync and the async twin of an interface
====================  ============================================================================================

`Backend.write` has these implementations: the backends, and `agent_memory.core.versions.keep.VersionedStore`, which a
flow gets instead of the backend while the store keeps versions.
"""
