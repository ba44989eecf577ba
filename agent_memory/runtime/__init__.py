"""Runs flows for sync and async callers; only this package chooses the thread or the event loop of a flow.

============  ===================================  ==============================================
caller        blocking backend                     async backend
============  ===================================  ==============================================
sync          stepped in the caller's thread       stepped in the caller's thread; each primitive
                                                   runs on fsspec's I/O loop
async         in threads of our executor; a wait   in the caller's event loop; each primitive
              for a lock holds no thread           runs on fsspec's I/O loop
============  ===================================  ==============================================

Only primitives run on fsspec's I/O loop, which all users of fsspec in a process share. Flows, hooks, waits and a
caller's ``change`` function never run there: a blocking call would stall the other users.
"""
