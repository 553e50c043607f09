/*
 * What a device is asked to do and to keep, for the sources of this library that end contexts: synchronization, limits,
 * access to peers. What is exported of it stands in device.h.
 */
#ifndef FLYT_CLIENT_DEVICE_STATE_H
#define FLYT_CLIENT_DEVICE_STATE_H

#include <stdbool.h>
#include <cuda.h>

struct flyt_restore;

/* A context of `device` that has reached these devices' memory (a bit each) is gone. */
CUresult flyt_device_peers_leave(int device, unsigned peers);
/* Something more of the device `device` reaches the memory of `peer`, or something less. */
CUresult flyt_device_peer_count(int device, int peer, bool is_enabled);
/* A bit for each device whose memory something of the device reaches: its own, and that of peers. */
unsigned flyt_device_reach(int device);
/* Lets all devices that can reach the device's memory, whatever contexts say, from now on: it has managed memory. The
 * server's error. */
CUresult flyt_device_peers_share(int device);
/* Sets again what the program has set: limits, cache preference, access to peers, the profiler (restore.h). */
int flyt_device_restore(struct flyt_restore *restore);

#endif
