/* SPDX-License-Identifier: GPL-2.0 */
/*
 * KSM for the tests that need it, as fast as it can, in a guest only.
 */
#ifndef PT_KSM_H
#define PT_KSM_H

#define KSM	"/sys/kernel/mm/ksm/"

static inline long ksm(const char *name)
{
	char path[128], *text;

	snprintf(path, sizeof(path), KSM "%s", name);
	text = pt_read(path);
	return text ? atol(text) : -1;
}

/* Nothing is merged, and ksmd is ready to run. Returns NULL, or why there is none. */
static inline const char *ksm_start(void)
{
	if (access(KSM "run", W_OK))
		return "kernel without CONFIG_KSM";
	pt_write(KSM "smart_scan", "0");
	if (pt_write(KSM "run", "2") || pt_write(KSM "sleep_millisecs", "0") ||
	    pt_write(KSM "pages_to_scan", "1000"))
		return "KSM cannot be set up";
	return NULL;
}

/* Unmerge everything that is left; then nothing may be shared. */
static inline bool ksm_stop(void)
{
	return !pt_write(KSM "run", "2") && !ksm("pages_shared") && !ksm("pages_sharing");
}

#endif /* PT_KSM_H */
