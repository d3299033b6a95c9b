/* SPDX-License-Identifier: GPL-2.0 */
/*
 * MGLRU for the tests that need it: aging, which walks the tables of everybody.
 */
#ifndef PT_LRU_H
#define PT_LRU_H

#define LRU_GEN		"/sys/kernel/debug/lru_gen"
#define LRU_ENABLED	"/sys/kernel/mm/lru_gen/enabled"

/* Turn it on, with all that it can. Returns NULL, or why it cannot be had. */
static inline const char *lru_start(void)
{
	if (access(LRU_ENABLED, W_OK) || !pt_debugfs(LRU_GEN))
		return "kernel without CONFIG_LRU_GEN";
	return pt_write(LRU_ENABLED, "7") ? "MGLRU cannot be enabled" : NULL;
}

/* One new generation for every memory cgroup and node; whether there was any. */
static inline bool lru_age(void *unused)
{
	static char all[64 * 1024];
	char command[128], *line, *rest;
	unsigned long memcg = 0, node = 0, gen = 0;
	char *text = pt_read(LRU_GEN);
	bool aged = false;

	if (!text)
		return false;
	strcpy(all, text);
	for (line = strtok_r(all, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		char *next = rest ? rest + strspn(rest, " ") : NULL;

		if (sscanf(line, "memcg %lu", &memcg) == 1 ||
		    sscanf(line, " node %lu", &node) == 1)
			continue;
		gen = strtoul(line, NULL, 10);
		/* The last generation of a node is the youngest one. */
		if (next && isdigit(*next))
			continue;
		snprintf(command, sizeof(command), "+ %lu %lu %lu 1 1", memcg, node, gen);
		/* EINVAL, ERANGE: somebody else has aged it meanwhile. */
		aged |= !pt_write(LRU_GEN, command);
	}
	return aged;
}

#endif /* PT_LRU_H */
