output "interruption_queue" {
  description = "For --interruption-queue."
  value       = aws_sqs_queue.interruption.name
}

output "node_role" {
  description = "For spec.role of EC2NodeClasses."
  value       = aws_iam_role.node.name
}

output "controller_role_arn" {
  description = "The controller's role, for IRSA in place of Pod Identity."
  value       = aws_iam_role.controller.arn
}
