/*
 * What this build is called: what `git describe` said of the tree that it was made from. The name is in an object of
 * its own, which is made again where the tree is called something else, and which programs and client libraries link
 * (BUILD_NAME in rpc/base/rules.mk). What does not, as tests, is called "unnamed" and needs no linking for a new name.
 */
#ifndef FLYT_BASE_BUILD_NAME_H
#define FLYT_BASE_BUILD_NAME_H

extern const char flyt_build_name[];

#endif
