variable "cluster_name" {
  description = "Name of the EKS cluster."
  type        = string
}

variable "namespace" {
  description = "Namespace that the controller runs in."
  type        = string
  default     = "coppice-system"
}

variable "service_account" {
  description = "Service account that the controller runs as."
  type        = string
  default     = "coppice"
}

variable "tags" {
  description = "Tags of everything that is made."
  type        = map(string)
  default     = {}
}
